// SPDX-License-Identifier: Apache-2.0
//
// Finds the cause of a missed deadline in the states that all ranks have sent. The causes are tried
// from the most certain to the least, and the first that holds is told.
#include "lib/control/late_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/log.h"
#include "base/text.h"
#include "lib/wire/join_report.h"

namespace rondo::control {
namespace {

constexpr std::size_t most_named = 8;

struct Case {
  const wire::DeadlineMessage& deadline;
  const std::vector<Standing>& standings;
  std::string operation;  // "all_reduce #41"
  std::string time;       // "5 s"

  const operation::LaneStatus& lane(int rank) const {
    return standings[static_cast<std::size_t>(rank)]
        .status.lanes[static_cast<std::size_t>(deadline.lane)];
  }
  template <class Test>
  std::vector<int> ranks(Test test) const {
    std::vector<int> found;
    for (std::size_t rank = 0; rank < standings.size(); ++rank)
      if (test(standings[rank], static_cast<int>(rank))) found.push_back(static_cast<int>(rank));
    return found;
  }
  // The ranks that have answered and whose status in the lane of the deadline passes the test.
  template <class Test>
  std::vector<int> answered(Test test) const {
    return ranks([&](const Standing& standing, int rank) {
      return standing.state == Standing::State::answered && test(lane(rank));
    });
  }
};

// A judge has found this: nothing if the text is empty.
struct Finding {
  std::string text;
  std::vector<int> culprits = {};
};

// Returns "; the last operation TITLE it is all_reduce #40 (64 MiB f32 sum)", for one rank or for
// the first few.
std::string last_operations(const Case& of, const std::vector<int>& ranks, const char* title) {
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), most_named); ++i) {
    const Standing& standing = of.standings[static_cast<std::size_t>(ranks[i])];
    const std::string& last = of.lane(ranks[i]).last;
    if (!standing.known) continue;
    const std::string who = ranks.size() == 1 ? "it" : fmt::format("rank {}", ranks[i]);
    text += last.empty() ? fmt::format("; {} has finished no operation yet", who)
                         : fmt::format("; the last operation {} {} is {}", title, who, last);
  }
  return text;
}

Finding silent(const Case& of) {
  const auto ranks = of.ranks(
      [](const Standing& standing, int) { return standing.state == Standing::State::silent; });
  if (ranks.empty()) return {};
  return {
      fmt::format("{} {} not answer (stopped, unreachable, or behind a full link){}; {}",
                  base::list_of_ranks(ranks), ranks.size() == 1 ? "does" : "do",
                  last_operations(of, ranks, "known of"),
                  of.deadline.warning
                      ? fmt::format("{} has waited for {}", of.operation, of.time)
                      : fmt::format("the deadline of {} of {} has passed", of.time, of.operation)),
      ranks};
}

Finding gone(const Case& of) {
  const auto ranks = of.ranks([&](const Standing& standing, int rank) {
    return standing.state == Standing::State::left &&
           of.lane(rank).finished < of.deadline.operation;
  });
  if (ranks.empty()) return {};
  return {fmt::format("{} left the communicator without finishing {}", base::list_of_ranks(ranks),
                      of.operation),
          ranks};
}

// Ranks that wait in one operation of lane 0 or 1, or in a message to or from another rank.
struct Queue {
  std::size_t lane = lane_count;
  std::uint64_t number = 0;
  std::vector<int> ranks;
};

const operation::LaneStatus& status_in(const Case& of, int rank, std::size_t lane) {
  const operation::RankStatus& status = of.standings[static_cast<std::size_t>(rank)].status;
  return lane == lane_count ? status.messages : status.lanes[lane];
}

// "rank 0 has waited for 12 s in urgent all_reduce #7 "metrics" (2 f64 sum), which ranks 1-3 have
// not called"
std::string describe(const Case& of, const Queue& queue) {
  const operation::LaneStatus& first = status_in(of, queue.ranks.front(), queue.lane);
  std::uint64_t waited = 0;
  for (const int rank : queue.ranks)
    waited = std::max(waited, status_in(of, rank, queue.lane).waited_ns);
  std::string call = first.current;
  if (const auto at = call.find(" ("); !first.tag.empty() && at != std::string::npos)
    call.insert(at, fmt::format(" \"{}\"", first.tag));
  std::string text = fmt::format(
      "{} {} waited for {} in {}", base::list_of_ranks(queue.ranks),
      queue.ranks.size() == 1 ? "has" : "have",
      wire::describe_seconds(std::round(static_cast<double>(waited) * 1e-8) / 10), call);
  if (queue.lane == lane_count)
    return first.waiting_for.empty() ? text
                                     : text + " for " + base::list_of_ranks(first.waiting_for);
  const auto missing = of.ranks([&](const Standing& standing, int rank) {
    return standing.state == Standing::State::answered &&
           status_in(of, rank, queue.lane).started < queue.number;
  });
  if (missing.empty()) return text + " for " + base::list_of_ranks(first.waiting_for);
  return text + fmt::format(", which {} {} not called", base::list_of_ranks(missing),
                            missing.size() == 1 ? "has" : "have");
}

// Some ranks wait in this operation for ranks that wait in another lane: neither side alone is to
// blame.
Finding crossed(const Case& of, int reporter) {
  const bool messages = of.deadline.operation == 0;
  Queue here{messages ? lane_count : static_cast<std::size_t>(of.deadline.lane),
             of.deadline.operation,
             {}};
  std::vector<Queue> queues;
  const auto join = [&](std::size_t lane, std::uint64_t number, int rank) {
    const auto same = std::ranges::find_if(queues, [&](const Queue& q) {
      return q.lane == lane && q.number == number && lane != lane_count;
    });
    if (same != queues.end())
      same->ranks.push_back(rank);
    else
      queues.push_back({lane, number, {rank}});
  };
  std::vector<int> awaited;
  if (messages && reporter >= 0 && static_cast<std::size_t>(reporter) < of.standings.size()) {
    here.ranks.push_back(reporter);
    awaited = status_in(of, reporter, lane_count).waiting_for;
  } else {
    here.ranks = of.answered([&](const operation::LaneStatus& lane) {
      return lane.finished + 1 == here.number && !lane.current.empty();
    });
    awaited =
        of.ranks([&](const Standing&, int rank) { return of.lane(rank).started < here.number; });
  }
  for (const int rank : awaited) {
    if (rank < 0 || static_cast<std::size_t>(rank) >= of.standings.size() || rank == reporter)
      continue;
    if (of.standings[static_cast<std::size_t>(rank)].state != Standing::State::answered) continue;
    for (std::size_t lane = 0; lane <= lane_count; ++lane) {
      const operation::LaneStatus& status = status_in(of, rank, lane);
      if (lane == here.lane || status.current.empty()) continue;
      join(lane, status.finished + 1, rank);
      break;
    }
  }
  if (queues.empty() || here.ranks.empty()) return {};
  queues.push_back(here);
  // The smaller group is more often wrong, so it comes first.
  std::ranges::stable_sort(
      queues, [](const Queue& a, const Queue& b) { return a.ranks.size() < b.ranks.size(); });
  Finding found;
  for (std::size_t i = 0; i < std::min(queues.size(), most_named); ++i)
    found.text += (found.text.empty() ? "" : "; ") + describe(of, queues[i]);
  for (const Queue& queue : queues)
    if (queue.ranks.size() == queues.front().ranks.size())
      found.culprits.insert(found.culprits.end(), queue.ranks.begin(), queue.ranks.end());
  std::ranges::sort(found.culprits);
  return found;
}

// For a warning about a message: the other end need not have called anything yet, so it is not to
// blame.
Finding slow_message(const Case& of, int reporter) {
  if (of.deadline.operation != 0 || !of.deadline.warning || reporter < 0 ||
      static_cast<std::size_t>(reporter) >= of.standings.size())
    return {};
  if (status_in(of, reporter, lane_count).current.empty()) return {};
  const std::string& gpu = status_in(of, reporter, lane_count).device;
  return {describe(of, {lane_count, 0, {reporter}}) +
          (gpu.empty() ? "" : ", which waits for " + gpu)};
}

Finding uncalled(const Case& of) {
  const auto ranks = of.answered(
      [&](const operation::LaneStatus& lane) { return lane.started < of.deadline.operation; });
  if (ranks.empty()) return {};
  return {fmt::format("{} {} not called {} within {}{}", base::list_of_ranks(ranks),
                      ranks.size() == 1 ? "has" : "have", of.operation, of.time,
                      last_operations(of, ranks, "finished by")),
          ranks};
}

// Ranks whose own GPU holds the operation up: others wait for them.
Finding held_by_gpus(const Case& of) {
  const auto held = of.answered([&](const operation::LaneStatus& lane) {
    return lane.finished < of.deadline.operation && !lane.device.empty();
  });
  if (held.empty()) return {};
  std::string text = fmt::format("{} did not end within {}: ", of.operation, of.time);
  for (std::size_t i = 0; i < std::min(held.size(), most_named); ++i)
    text +=
        fmt::format("{}rank {} waits for {}", i == 0 ? "" : "; ", held[i], of.lane(held[i]).device);
  if (held.size() > most_named)
    text += fmt::format("; and {} more ranks wait so", held.size() - most_named);
  return {text, held};
}

Finding waiting(const Case& of) {
  const auto waiters = of.answered([&](const operation::LaneStatus& lane) {
    return lane.finished < of.deadline.operation && !lane.waiting_for.empty();
  });
  if (waiters.empty()) return {};
  // A rank that others wait for, and that waits for nobody itself, is where the operation hangs.
  std::vector<bool> waits(of.standings.size()), awaited(of.standings.size());
  for (const int waiter : waiters) {
    waits[static_cast<std::size_t>(waiter)] = true;
    for (const int rank : of.lane(waiter).waiting_for)
      if (rank >= 0 && static_cast<std::size_t>(rank) < awaited.size())
        awaited[static_cast<std::size_t>(rank)] = true;
  }
  const auto roots = of.ranks([&](const Standing&, int rank) {
    return awaited[static_cast<std::size_t>(rank)] && !waits[static_cast<std::size_t>(rank)];
  });
  std::string text = fmt::format("{} did not end within {}: ", of.operation, of.time);
  if (!roots.empty())
    text += fmt::format("{} {} and {} for no other rank: ", base::list_of_ranks(roots),
                        roots.size() == 1 ? "holds up the others" : "hold up the others",
                        roots.size() == 1 ? "waits" : "wait");
  for (std::size_t i = 0; i < std::min(waiters.size(), most_named); ++i)
    text += fmt::format("{}rank {} waits for {}", i == 0 ? "" : ", ", waiters[i],
                        base::list_of_ranks(of.lane(waiters[i]).waiting_for));
  if (waiters.size() > most_named)
    text += fmt::format(" and {} more ranks wait", waiters.size() - most_named);
  return {text, roots};
}

}  // namespace

std::optional<operation::Failure> find_disagreement(const wire::DeadlineMessage& deadline,
                                                    const std::vector<Standing>& standings) {
  const Case of{deadline, standings, {}, {}};
  const auto callers = of.answered([&](const operation::LaneStatus& lane) {
    return lane.finished + 1 == deadline.operation && !lane.current.empty();
  });
  if (callers.empty()) return std::nullopt;
  const std::string& first = of.lane(callers.front()).current;
  for (const int rank : callers)
    if (const std::string& other = of.lane(rank).current; other != first)
      return operation::Failure{Errc::mismatch,
                                fmt::format("rank {} called {} where rank {} called {}", rank,
                                            other, callers.front(), first),
                                -1,
                                {rank}};
  return std::nullopt;
}

std::optional<operation::Failure> find_oldest_disagreement(Priority lane,
                                                           const std::vector<Standing>& standings) {
  wire::DeadlineMessage oldest;
  oldest.lane = lane;
  for (const Standing& standing : standings) {
    const operation::LaneStatus& status = standing.status.lanes[static_cast<std::size_t>(lane)];
    if (standing.state != Standing::State::answered || status.current.empty()) continue;
    if (oldest.operation == 0 || status.finished + 1 < oldest.operation)
      oldest.operation = status.finished + 1;
  }
  return oldest.operation == 0 ? std::nullopt : find_disagreement(oldest, standings);
}

operation::Failure find_late_ranks(const wire::DeadlineMessage& deadline, int reporter,
                                   const std::vector<Standing>& standings) {
  if (auto disagreement = find_disagreement(deadline, standings)) return *disagreement;
  Case of{deadline,
          standings,
          {},
          wire::describe_seconds(static_cast<double>(deadline.deadline_ns) * 1e-9)};
  std::vector<int> awaited;
  if (reporter >= 0 && static_cast<std::size_t>(reporter) < standings.size()) {
    const std::string& current = of.lane(reporter).current;
    of.operation = current.substr(0, current.find(" ("));
    awaited =
        status_in(of, reporter,
                  deadline.operation == 0 ? lane_count : static_cast<std::size_t>(deadline.lane))
            .waiting_for;
  }
  if (deadline.operation == 0) of.operation = "messages between two ranks";
  if (of.operation.empty()) of.operation = fmt::format("operation #{}", deadline.operation);
  const auto crossing = [&](const Case& c) { return crossed(c, reporter); };
  const auto message = [&](const Case& c) { return slow_message(c, reporter); };
  using Judge = std::function<Finding(const Case&)>;
  for (const Judge& judge : {Judge(silent), Judge(gone), Judge(crossing), Judge(message),
                             Judge(uncalled), Judge(held_by_gpus), Judge(waiting)})
    if (Finding found = judge(of); !found.text.empty())
      return {Errc::deadline_exceeded, std::move(found.text), -1, std::move(found.culprits)};
  const std::string fallback =
      fmt::format("{} did not end within {} on rank {}", of.operation, of.time, reporter);
  return {Errc::deadline_exceeded, deadline.what.empty() ? fallback : deadline.what, -1,
          std::move(awaited)};
}

void LongWaits::tell(const wire::DeadlineMessage& slow, int reporter,
                     const std::vector<Standing>& standings) {
  const auto lane = static_cast<std::size_t>(slow.lane);
  if (slow.operation != 0 && slow.operation <= told_[lane]) return;
  const auto still_waits = [&](const Standing& standing) {
    return standing.status.lanes[lane].finished < slow.operation;
  };
  if (slow.operation != 0 && std::ranges::none_of(standings, still_waits)) return;
  if (slow.operation == 0 &&
      standings[static_cast<std::size_t>(reporter)].status.messages.current.empty())
    return;
  std::string text = find_late_ranks(slow, reporter, standings).cause;
  if (slow.operation == 0 && text == last_) return;
  base::log_line(base::LogLevel::warning, text);
  last_ = std::move(text);
  told_[lane] = std::max(told_[lane], slow.operation);
  for (const Standing& standing : standings)
    for (std::size_t i = 0; i < lane_count; ++i)
      if (const operation::LaneStatus& status = standing.status.lanes[i]; !status.current.empty())
        told_[i] = std::max(told_[i], status.finished + 1);
}

}  // namespace rondo::control
