// SPDX-License-Identifier: Apache-2.0
#include "lib/control_culprits.h"

#include <fmt/format.h>

#include <algorithm>

#include "lib/rendezvous_attendance.h"

namespace rondo {
namespace {

constexpr std::size_t most_named = 8;

struct Case {
  const DeadlineMessage& deadline;
  const std::vector<Standing>& standings;
  std::string operation;  // "all_reduce #41"
  std::string time;       // "5 s"

  const LaneStatus& lane(int rank) const {
    return standings[static_cast<std::size_t>(rank)].status.lanes[static_cast<std::size_t>(deadline.lane)];
  }
  template <class Test>
  std::vector<int> ranks(Test test) const {
    std::vector<int> found;
    for (std::size_t rank = 0; rank < standings.size(); ++rank)
      if (test(standings[rank], static_cast<int>(rank))) found.push_back(static_cast<int>(rank));
    return found;
  }
};

// "; the last operation TITLE is all_reduce #40 (64 MiB f32 sum)", for one rank or for the first few.
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

std::string silent(const Case& of) {
  const auto ranks =
      of.ranks([](const Standing& standing, int) { return standing.state == Standing::State::silent; });
  if (ranks.empty()) return {};
  return fmt::format("{} {} not answer (stopped or unreachable){}; the deadline of {} of {} has passed",
                     list_ranks(ranks), ranks.size() == 1 ? "does" : "do",
                     last_operations(of, ranks, "known of"), of.time, of.operation);
}

std::string gone(const Case& of) {
  const auto ranks = of.ranks([&](const Standing& standing, int rank) {
    return standing.state == Standing::State::left && of.lane(rank).finished < of.deadline.operation;
  });
  if (ranks.empty()) return {};
  return fmt::format("{} left the communicator without finishing {}", list_ranks(ranks), of.operation);
}

std::string uncalled(const Case& of) {
  const auto ranks = of.ranks([&](const Standing& standing, int rank) {
    return standing.state == Standing::State::answered && of.lane(rank).started < of.deadline.operation;
  });
  if (ranks.empty()) return {};
  return fmt::format("{} {} not called {} within {}{}", list_ranks(ranks), ranks.size() == 1 ? "has" : "have",
                     of.operation, of.time, last_operations(of, ranks, "finished by"));
}

std::string waiting(const Case& of) {
  const auto waiters = of.ranks([&](const Standing& standing, int rank) {
    return standing.state == Standing::State::answered && of.lane(rank).finished < of.deadline.operation &&
           !of.lane(rank).waiting_for.empty();
  });
  if (waiters.empty()) return {};
  // A rank that others wait for and that waits for nobody is where it hangs.
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
    text += fmt::format("{} {} the others wait and {} for nobody: ", list_ranks(roots),
                        roots.size() == 1 ? "is the one for which" : "are those for which",
                        roots.size() == 1 ? "waits" : "wait");
  for (std::size_t i = 0; i < std::min(waiters.size(), most_named); ++i)
    text += fmt::format("{}rank {} waits for {}", i == 0 ? "" : ", ", waiters[i],
                        list_ranks(of.lane(waiters[i]).waiting_for));
  if (waiters.size() > most_named)
    text += fmt::format(" and {} more ranks wait", waiters.size() - most_named);
  return text;
}

}  // namespace

std::optional<Failure> find_disagreement(const DeadlineMessage& deadline,
                                         const std::vector<Standing>& standings) {
  const Case of{deadline, standings, {}, {}};
  const auto callers = of.ranks([&](const Standing& standing, int rank) {
    const LaneStatus& lane = of.lane(rank);
    return standing.state == Standing::State::answered && lane.finished + 1 == deadline.operation &&
           !lane.current.empty();
  });
  if (callers.empty()) return std::nullopt;
  const std::string& first = of.lane(callers.front()).current;
  for (const int rank : callers)
    if (const std::string& other = of.lane(rank).current; other != first)
      return Failure{Errc::mismatch, fmt::format("rank {} called {} where rank {} called {}", rank, other,
                                                 callers.front(), first)};
  return std::nullopt;
}

std::optional<Failure> find_oldest_disagreement(Priority lane, const std::vector<Standing>& standings) {
  DeadlineMessage oldest;
  oldest.lane = lane;
  for (const Standing& standing : standings) {
    const LaneStatus& status = standing.status.lanes[static_cast<std::size_t>(lane)];
    if (standing.state != Standing::State::answered || status.current.empty()) continue;
    if (oldest.operation == 0 || status.finished + 1 < oldest.operation)
      oldest.operation = status.finished + 1;
  }
  return oldest.operation == 0 ? std::nullopt : find_disagreement(oldest, standings);
}

Failure find_culprits(const DeadlineMessage& deadline, int reporter, const std::vector<Standing>& standings) {
  if (auto disagreement = find_disagreement(deadline, standings)) return *disagreement;
  Case of{deadline, standings, {}, describe_seconds(static_cast<double>(deadline.deadline_ns) * 1e-9)};
  if (reporter >= 0 && static_cast<std::size_t>(reporter) < standings.size()) {
    const std::string& current = of.lane(reporter).current;
    of.operation = current.substr(0, current.find(" ("));
  }
  if (deadline.operation == 0) of.operation = "messages between two ranks";
  if (of.operation.empty()) of.operation = fmt::format("operation #{}", deadline.operation);
  for (const auto& judge : {silent, gone, uncalled, waiting})
    if (std::string cause = judge(of); !cause.empty()) return {Errc::deadline_exceeded, std::move(cause)};
  const std::string fallback =
      fmt::format("{} did not end within {} on rank {}", of.operation, of.time, reporter);
  return {Errc::deadline_exceeded, deadline.what.empty() ? fallback : deadline.what};
}

}  // namespace rondo
