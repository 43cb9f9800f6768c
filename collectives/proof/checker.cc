// SPDX-License-Identifier: Apache-2.0
//
// First the links of one segment are compared at both ends; then the ranks run, each as far as it
// can, until nobody can go on. Every event waits for a fixed set of others, so the order in which
// ranks are tried does not matter: what stands still at the end would stand still in every run.
#include "collectives/proof/checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "collectives/proof/symbolic.h"
#include "collectives/schedules/order.h"

namespace rondo::proof {

namespace {

struct CheckedLink {
  int from = 0, to = 0;
  std::vector<std::uint32_t> sends, takes;  // steps of a segment, in list order
  std::size_t first_frame = 0;              // number of its first frame among those of a segment
  schedules::FrameTable table;
  schedules::FrameOrder send_order, take_order;
  std::uint32_t in_flight = 0;
};

enum class State : std::uint8_t { waiting, received, done };

struct CheckedRank {
  std::vector<std::int64_t> previous;  // by step: the step of the same slice before it, or -1
  std::vector<std::size_t> after;   // by step: how many steps of the segment must be done before it
  std::vector<std::size_t> locals;  // steps without from and to
  std::vector<std::size_t> links;   // all that begin or end here
  std::uint64_t base = 0;
  std::vector<State> states;      // by segment and step
  std::vector<std::size_t> done;  // by segment
  bool queued = false;
};

class Check {
 public:
  Check(const std::vector<schedules::Schedule>& schedules, const CheckOptions& options)
      : schedules_(schedules),
        options_(options),
        size_(static_cast<int>(schedules.size())),
        window_(schedules::segment_window(options.depth)),
        ranks_(schedules.size()) {}

  CheckReport run(Collective operation, int root);

 private:
  std::string prepare(bool crossed);
  std::string check_step(int rank, const schedules::Step& step) const;
  std::string prepare_rank(int rank);
  std::string compare_links(bool crossed) const;
  void simulate(Symbolic& symbolic);
  std::string standstill() const;

  std::size_t link_between(int from, int to);
  const std::vector<schedules::Step>& steps(int rank) const {
    return schedules_[static_cast<std::size_t>(rank)].steps;
  }
  CheckedRank& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const CheckedRank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  State& state(int rank, std::uint64_t segment, std::size_t step) {
    return at(rank).states[segment * steps(rank).size() + step];
  }
  State state(int rank, std::uint64_t segment, std::size_t step) const {
    return at(rank).states[segment * steps(rank).size() + step];
  }

  bool may_begin(int rank, std::uint64_t segment, std::size_t step) const;
  bool may_send(const CheckedLink& link) const;
  bool may_take(const CheckedLink& link) const;
  void send(CheckedLink& link, Symbolic& symbolic);
  void take(CheckedLink& link, Symbolic& symbolic);
  bool advance(CheckedLink& link, Symbolic& symbolic);
  void finish_step(int rank, std::uint64_t segment, std::size_t step, Symbolic& symbolic);
  void run_locals(int rank, std::uint64_t segment, Symbolic& symbolic);
  void wake(int rank);

  const std::vector<schedules::Schedule>& schedules_;
  const CheckOptions& options_;
  int size_;
  std::uint64_t window_;
  std::vector<CheckedRank> ranks_;
  std::vector<CheckedLink> links_;
  std::vector<std::int32_t> link_index_;  // from * size + to
  std::size_t frames_ = 0;
  std::deque<int> ready_;
};

std::size_t Check::link_between(int from, int to) {
  std::int32_t& index = link_index_[static_cast<std::size_t>(from) * schedules_.size() +
                                    static_cast<std::size_t>(to)];
  if (index < 0) {
    index = static_cast<std::int32_t>(links_.size());
    links_.push_back({.from = from,
                      .to = to,
                      .sends = {},
                      .takes = {},
                      .table = {},
                      .send_order = {},
                      .take_order = {}});
    at(from).links.push_back(static_cast<std::size_t>(index));
    at(to).links.push_back(static_cast<std::size_t>(index));
  }
  return static_cast<std::size_t>(index);
}

// What is wrong with a step by itself.
std::string Check::check_step(int rank, const schedules::Step& step) const {
  const schedules::Schedule& common = schedules_.front();
  const auto outside = [&](int peer) {
    return peer != schedules::no_rank && (peer < 0 || peer >= size_ || peer == rank);
  };
  if (step.slice > common.slices) return "there is no such slice";
  if (outside(step.from) || outside(step.to)) return "there is no such peer";
  if (step.slice == common.slices && (step.reduce || step.keep))
    return "a token has nothing to reduce or keep";
  if (step.reduce && step.from == schedules::no_rank) return "there is nothing to reduce with";
  if (step.from == schedules::no_rank && step.to == schedules::no_rank && !step.keep)
    return "it does nothing";
  const bool early = step.from != schedules::no_rank && step.round == 0;
  if (early || step.round + (step.to == schedules::no_rank ? 0 : 1) > common.rounds)
    return fmt::format("its frames do not travel in rounds 1 to {}", common.rounds);
  return {};
}

std::string Check::prepare_rank(int rank) {
  const schedules::Schedule& common = schedules_.front();
  const schedules::Schedule& own = schedules_[static_cast<std::size_t>(rank)];
  if (own.slices != common.slices || own.rounds != common.rounds)
    return fmt::format("rank {} has {} slices and {} rounds, rank 0 has {} and {}", rank,
                       own.slices, own.rounds, common.slices, common.rounds);
  std::vector<std::int64_t> last(common.slices + 1, -1);
  std::size_t fence = 0;
  std::uint32_t fence_round = 0, latest = 0;
  for (std::size_t i = 0; i < own.steps.size(); ++i) {
    const schedules::Step& step = own.steps[i];
    const auto complain = [&](std::string_view text) {
      return fmt::format("{}: {}", describe_step(rank, i, step, common.slices), text);
    };
    if (const std::string problem = check_step(rank, step); !problem.empty())
      return complain(problem);
    const bool token = step.slice == common.slices;
    const std::int64_t previous = last[step.slice];
    const std::uint32_t earliest =
        previous < 0 ? 0 : own.steps[static_cast<std::size_t>(previous)].round;
    if (step.round < std::max(earliest, token ? latest : fence_round))
      return complain("its round is before that of a step it waits for");
    at(rank).previous.push_back(previous);
    at(rank).after.push_back(token ? i : fence);
    last[step.slice] = static_cast<std::int64_t>(i);
    latest = std::max(latest, step.round);
    if (token) {
      fence = i + 1;
      fence_round = step.round;
    }
    if (step.from == schedules::no_rank && step.to == schedules::no_rank)
      at(rank).locals.push_back(i);
    if (step.from != schedules::no_rank)
      links_[link_between(step.from, rank)].takes.push_back(static_cast<std::uint32_t>(i));
    if (step.to != schedules::no_rank)
      links_[link_between(rank, step.to)].sends.push_back(static_cast<std::uint32_t>(i));
  }
  at(rank).states.assign(options_.segments * own.steps.size(), State::waiting);
  at(rank).done.assign(options_.segments, 0);
  return {};
}

// crossed: all_to_all, where a block bears the name of the rank at its other end.
std::string Check::compare_links(bool crossed) const {
  for (const CheckedLink& link : links_) {
    std::uint32_t round = 0;
    for (std::size_t i = 0; i < std::max(link.sends.size(), link.takes.size()); ++i) {
      const auto name = [&](int rank, std::uint32_t step) {
        return describe_step(rank, step, steps(rank)[step], schedules_.front().slices);
      };
      if (i >= link.takes.size())
        return fmt::format("{}: rank {} never receives this frame", name(link.from, link.sends[i]),
                           link.to);
      if (i >= link.sends.size())
        return fmt::format("{}: rank {} never sends this frame", name(link.to, link.takes[i]),
                           link.from);
      const schedules::Step& taken = steps(link.to)[link.takes[i]];
      const schedules::Step& sent = steps(link.from)[link.sends[i]];
      const auto complain = [&](std::string_view text) {
        return fmt::format("{}: {} {}", name(link.to, link.takes[i]), text,
                           name(link.from, link.sends[i]));
      };
      const auto block = [](int rank) { return static_cast<std::uint32_t>(rank); };
      const bool right = crossed && sent.slice != schedules_.front().slices
                             ? sent.slice == block(link.to) && taken.slice == block(link.from)
                             : sent.slice == taken.slice;
      if (!right) return complain("wrong slice, what comes is that of");
      if (sent.round + 1 != taken.round) return complain("not in the round after");
      if (taken.round < round)
        return complain("a frame of a later round would come before that of");
      round = taken.round;
    }
  }
  return {};
}

std::string Check::prepare(bool crossed) {
  link_index_.assign(schedules_.size() * schedules_.size(), -1);
  for (int rank = 0; rank < size_; ++rank)
    if (std::string problem = prepare_rank(rank); !problem.empty()) return problem;
  if (std::string problem = compare_links(crossed); !problem.empty()) return problem;
  for (CheckedLink& link : links_) {
    link.first_frame = frames_;
    frames_ += link.sends.size();
    std::vector<std::uint32_t> rounds;
    for (const std::uint32_t step : link.takes) rounds.push_back(steps(link.to)[step].round);
    link.table = schedules::FrameTable(rounds, schedules_.front().rounds, options_.depth);
    link.send_order = link.take_order = schedules::FrameOrder(link.table, options_.segments);
  }
  return {};
}

bool Check::may_begin(int rank, std::uint64_t segment, std::size_t step) const {
  const CheckedRank& r = at(rank);
  if (segment >= r.base + window_ || state(rank, segment, step) != State::waiting) return false;
  const std::int64_t previous = r.previous[step];
  return r.done[segment] >= r.after[step] &&
         (previous < 0 || state(rank, segment, static_cast<std::size_t>(previous)) == State::done);
}

bool Check::may_send(const CheckedLink& link) const {
  if (link.send_order.done()) return false;
  const std::uint64_t segment = link.send_order.segment();
  const std::size_t step = link.sends[link.send_order.frame()];
  return steps(link.from)[step].from != schedules::no_rank
             ? state(link.from, segment, step) == State::received
             : may_begin(link.from, segment, step);
}

bool Check::may_take(const CheckedLink& link) const {
  return !link.take_order.done() &&
         may_begin(link.to, link.take_order.segment(), link.takes[link.take_order.frame()]);
}

void Check::send(CheckedLink& link, Symbolic& symbolic) {
  const std::uint64_t segment = link.send_order.segment();
  const std::uint32_t frame = link.send_order.frame();
  const std::size_t step = link.sends[frame];
  if (segment == 0) {
    if (steps(link.from)[step].from == schedules::no_rank) symbolic.keep_local(link.from, step);
    symbolic.send(link.from, step, link.first_frame + frame);
  }
  ++link.in_flight;
  link.send_order.advance();
  finish_step(link.from, segment, step, symbolic);
}

void Check::take(CheckedLink& link, Symbolic& symbolic) {
  const std::uint64_t segment = link.take_order.segment();
  const std::uint32_t frame = link.take_order.frame();
  const std::size_t step = link.takes[frame];
  if (segment == 0) symbolic.receive(link.to, step, link.first_frame + frame);
  --link.in_flight;
  link.take_order.advance();
  if (steps(link.to)[step].to == schedules::no_rank)
    finish_step(link.to, segment, step, symbolic);
  else
    state(link.to, segment, step) = State::received;
}

// Without credits a frame is handed over only to a receiver that takes it.
bool Check::advance(CheckedLink& link, Symbolic& symbolic) {
  const bool taken = link.in_flight > 0 && may_take(link);
  if (taken) take(link, symbolic);
  const bool room = link.in_flight < options_.credits || (options_.credits == 0 && may_take(link));
  const bool sent = room && may_send(link);
  if (sent) send(link, symbolic);
  if (sent && options_.credits == 0) take(link, symbolic);
  if (taken || sent) {
    wake(link.from);
    wake(link.to);
  }
  return taken || sent;
}

void Check::finish_step(int rank, std::uint64_t segment, std::size_t step, Symbolic& symbolic) {
  CheckedRank& r = at(rank);
  state(rank, segment, step) = State::done;
  if (++r.done[segment] == steps(rank).size()) {
    if (segment == 0) symbolic.rank_done(rank);
    while (r.base < options_.segments && r.done[r.base] == steps(rank).size()) {
      ++r.base;
      if (const std::uint64_t opened = r.base + window_ - 1; opened < options_.segments)
        run_locals(rank, opened, symbolic);
    }
  }
  run_locals(rank, segment, symbolic);
}

void Check::run_locals(int rank, std::uint64_t segment, Symbolic& symbolic) {
  for (const std::size_t step : at(rank).locals) {
    if (!may_begin(rank, segment, step)) continue;
    if (segment == 0) symbolic.keep_local(rank, step);
    finish_step(rank, segment, step, symbolic);
  }
}

void Check::wake(int rank) {
  if (at(rank).queued) return;
  at(rank).queued = true;
  ready_.push_back(rank);
}

void Check::simulate(Symbolic& symbolic) {
  for (int rank = 0; rank < size_; ++rank) {
    if (steps(rank).empty()) {
      at(rank).base = options_.segments;
      symbolic.rank_done(rank);
    }
    for (std::uint64_t s = 0; s < std::min(window_, options_.segments); ++s)
      run_locals(rank, s, symbolic);
    wake(rank);
  }
  while (!ready_.empty() && symbolic.problem().empty()) {
    const int rank = ready_.front();
    ready_.pop_front();
    at(rank).queued = false;
    for (const std::size_t link : at(rank).links)
      while (advance(links_[link], symbolic)) {
      }
  }
}

// Whom the ranks wait for, each with the first step of its oldest segment that is not done.
std::string Check::standstill() const {
  constexpr int most = 8;
  std::string text;
  int stuck = 0;
  for (int rank = 0; rank < size_; ++rank) {
    const std::uint64_t segment = at(rank).base;
    if (segment == options_.segments || ++stuck > most) continue;
    std::size_t step = 0;
    while (state(rank, segment, step) == State::done) ++step;
    const bool sending = steps(rank)[step].from == schedules::no_rank ||
                         state(rank, segment, step) == State::received;
    text += fmt::format("{}{} of segment {} waits to {}", text.empty() ? "deadlock: " : "; ",
                        describe_step(rank, step, steps(rank)[step], schedules_.front().slices),
                        segment, sending ? "send" : "receive");
  }
  if (stuck > most) text += fmt::format("; and {} ranks more", stuck - most);
  return text;
}

CheckReport Check::run(Collective operation, int root) {
  CheckReport report;
  report.problem = prepare(operation == Collective::all_to_all);
  if (!report.ok()) return report;
  for (int rank = 0; rank < size_; ++rank)
    report.slices_sent.push_back(static_cast<std::uint64_t>(
        std::count_if(steps(rank).begin(), steps(rank).end(), [&](const schedules::Step& step) {
          return step.to != schedules::no_rank && step.slice != schedules_.front().slices;
        })));
  for (const CheckedLink& link : links_)
    report.most_frames_on_a_link =
        std::max(report.most_frames_on_a_link, static_cast<std::uint32_t>(link.sends.size()));
  Symbolic symbolic(schedules_, operation, root, frames_);
  simulate(symbolic);
  if (symbolic.problem().empty()) report.problem = standstill();
  if (report.ok()) symbolic.all_done();
  if (report.ok()) report.problem = symbolic.problem();
  report.rounds = symbolic.rounds();
  if (options_.expressions)
    for (std::uint32_t slice = 0; slice < schedules_.front().slices; ++slice)
      report.expressions.push_back(symbolic.expression_of(slice));
  return report;
}

}  // namespace

CheckReport check(const std::vector<schedules::Schedule>& schedules, Collective operation, int root,
                  const CheckOptions& options) {
  if (schedules.empty() || root < 0 || root >= static_cast<int>(schedules.size()) ||
      options.segments == 0) {
    CheckReport report;
    report.problem = fmt::format("nothing to check: {} ranks, root {}, {} segments",
                                 schedules.size(), root, options.segments);
    return report;
  }
  return Check(schedules, options).run(operation, root);
}

}  // namespace rondo::proof
