// SPDX-License-Identifier: Apache-2.0
//
// The checker itself. It first compares the two ends of each link for one segment. Then each rank
// runs as far as it can, until no rank can continue. Every event waits for a fixed set of other
// events, so the order in which ranks run does not matter: a rank that is stuck at the end would be
// stuck in every run. Rules is Progress; a test passes other rules and requires that the checker
// finds what they break.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/proof/checker.h"
#include "collectives/proof/symbolic.h"
#include "collectives/schedules/progress.h"

namespace rondo::proof {

struct CheckedLink {
  int from = 0, to = 0;
  std::vector<std::uint32_t> sends, takes;  // steps of a segment, in list order
  std::size_t first_frame = 0;              // its first frame's number among all of a segment
  int receiver = 0, sender = 0;  // index of `to` among the peers of `from`, and the reverse
  std::deque<schedules::FramePlace> in_flight;  // as the sender names them, oldest first
};

template <class Rules>
struct CheckedRank {
  std::vector<std::size_t> links;  // all that begin or end here
  Rules progress;
  bool queued = false;
  bool told = false;  // Symbolic knows that the first segment is complete
};

// For one run() in one thread. The schedules and the options must outlive it.
template <class Rules>
class Check {
 public:
  Check(const std::vector<schedules::Schedule>& schedules, const CheckOptions& options)
      : schedules_(schedules),
        options_(options),
        size_(static_cast<int>(schedules.size())),
        ranks_(schedules.size()),
        tables_(schedules.front().rounds, options.depth) {}

  CheckReport run(Collective operation, int root);

 private:
  std::string prepare(bool crossed);
  std::string check_step(int rank, const schedules::Step& step) const;
  std::string prepare_rank(int rank);
  std::string compare_links(bool crossed) const;
  void make_programs();
  void simulate(Symbolic& symbolic);
  std::string standstill() const;

  std::size_t link_between(int from, int to);
  const std::vector<schedules::Step>& steps(int rank) const {
    return schedules_[static_cast<std::size_t>(rank)].steps;
  }
  CheckedRank<Rules>& at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  const CheckedRank<Rules>& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  bool is_token(const schedules::ProgramStep& step) const {
    return step.slice == schedules_.front().slices;
  }
  // A link reads the frame's memory until its receiver takes it. A token has none.
  bool is_held(const schedules::ProgramStep& step) const {
    return options_.held && !is_token(step);
  }

  std::optional<schedules::FramePlace> next_take(const CheckedLink& link, std::size_t ahead) const;
  bool may_send(const CheckedLink& link) const;
  void send(CheckedLink& link, Symbolic& symbolic);
  void take(CheckedLink& link, Symbolic& symbolic);
  void hand_over(const CheckedLink& link, const schedules::FramePlace& place, Symbolic& symbolic);
  bool advance(CheckedLink& link, Symbolic& symbolic);
  auto keeper(int rank, Symbolic& symbolic) {
    return [rank, &symbolic](std::uint64_t segment, std::uint32_t step) {
      if (segment == 0) symbolic.keep_local(rank, step);
    };
  }
  void changed(int rank, Symbolic& symbolic);
  bool waits_to_send(int rank, std::uint64_t segment, std::uint32_t step) const;

  const std::vector<schedules::Schedule>& schedules_;
  const CheckOptions& options_;
  int size_;
  std::vector<CheckedRank<Rules>> ranks_;
  schedules::FrameTables tables_;
  std::vector<schedules::Program> programs_;
  std::vector<CheckedLink> links_;
  std::vector<std::int32_t> link_index_;  // from * size + to
  std::size_t frames_ = 0;
  std::deque<int> ready_;
};

template <class Rules>
std::size_t Check<Rules>::link_between(int from, int to) {
  std::int32_t& index = link_index_[static_cast<std::size_t>(from) * schedules_.size() +
                                    static_cast<std::size_t>(to)];
  if (index < 0) {
    index = static_cast<std::int32_t>(links_.size());
    links_.push_back({.from = from, .to = to, .sends = {}, .takes = {}, .in_flight = {}});
    at(from).links.push_back(static_cast<std::size_t>(index));
    at(to).links.push_back(static_cast<std::size_t>(index));
  }
  return static_cast<std::size_t>(index);
}

// Names the defect of a step, seen alone. Empty: none.
template <class Rules>
std::string Check<Rules>::check_step(int rank, const schedules::Step& step) const {
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

template <class Rules>
std::string Check<Rules>::prepare_rank(int rank) {
  const schedules::Schedule& common = schedules_.front();
  const schedules::Schedule& own = schedules_[static_cast<std::size_t>(rank)];
  if (own.slices != common.slices || own.rounds != common.rounds)
    return fmt::format("rank {} has {} slices and {} rounds, rank 0 has {} and {}", rank,
                       own.slices, own.rounds, common.slices, common.rounds);
  std::vector<std::int64_t> last(common.slices + 1, -1);
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
    last[step.slice] = static_cast<std::int64_t>(i);
    latest = std::max(latest, step.round);
    if (token) fence_round = step.round;
    if (step.from != schedules::no_rank)
      links_[link_between(step.from, rank)].takes.push_back(static_cast<std::uint32_t>(i));
    if (step.to != schedules::no_rank)
      links_[link_between(rank, step.to)].sends.push_back(static_cast<std::uint32_t>(i));
  }
  return {};
}

// crossed: all_to_all, where each end numbers a block by the rank at the other end.
template <class Rules>
std::string Check<Rules>::compare_links(bool crossed) const {
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

template <class Rules>
std::string Check<Rules>::prepare(bool crossed) {
  link_index_.assign(schedules_.size() * schedules_.size(), -1);
  for (int rank = 0; rank < size_; ++rank)
    if (std::string problem = prepare_rank(rank); !problem.empty()) return problem;
  if (std::string problem = compare_links(crossed); !problem.empty()) return problem;
  make_programs();
  return {};
}

template <class Rules>
void Check<Rules>::make_programs() {
  programs_.reserve(schedules_.size());
  for (int rank = 0; rank < size_; ++rank) {
    const schedules::Program& program =
        programs_.emplace_back(schedules_[static_cast<std::size_t>(rank)], options_.depth, tables_);
    schedules::Progress::Room room;
    at(rank).progress.begin(program, options_.segments, room);
    for (std::size_t i = 0; i < program.peers().size(); ++i) {
      const int peer = program.peers()[i].rank;
      if (program.peers()[i].receives->frames() != 0)
        links_[link_between(peer, rank)].sender = static_cast<int>(i);
      if (program.peers()[i].sends->frames() != 0)
        links_[link_between(rank, peer)].receiver = static_cast<int>(i);
    }
  }
  for (CheckedLink& link : links_) {
    link.first_frame = frames_;
    frames_ += link.sends.size();
  }
}

// The frame `ahead` places after the next one to take, if the receiver may take it now.
template <class Rules>
std::optional<schedules::FramePlace> Check<Rules>::next_take(const CheckedLink& link,
                                                             std::size_t ahead) const {
  const Rules& progress = at(link.to).progress;
  std::optional<schedules::FramePlace> place;
  if (ahead != 0)
    place = progress.later_receive(link.sender, ahead);
  else if (!progress.peer(link.sender).receives.done())
    place = progress.next_receive(link.sender);
  if (!place) return std::nullopt;
  const auto overwrites = is_token(progress.step(*place)) ? schedules::Overwrites::nothing
                          : options_.in_place             ? schedules::Overwrites::value_and_input
                                                          : schedules::Overwrites::value;
  return progress.may_receive(*place, overwrites) ? place : std::nullopt;
}

template <class Rules>
bool Check<Rules>::may_send(const CheckedLink& link) const {
  const Rules& progress = at(link.from).progress;
  return !progress.peer(link.receiver).sends.done() &&
         progress.may_send(progress.next_send(link.receiver));
}

template <class Rules>
void Check<Rules>::send(CheckedLink& link, Symbolic& symbolic) {
  Rules& progress = at(link.from).progress;
  const schedules::FramePlace place = progress.next_send(link.receiver);
  const schedules::ProgramStep& step = progress.step(place);
  if (place.segment == 0) {
    const std::size_t frame = link.first_frame + place.frame;
    symbolic.send(link.from, place.step, frame, step.written || step.writes(), is_held(step));
    const auto foreseen = next_take(link, link.in_flight.size());
    if (foreseen && !at(link.to).progress.step(*foreseen).reduce)
      symbolic.granted(link.to, foreseen->step, frame);
  }
  link.in_flight.push_back(progress.send_started(link.receiver, keeper(link.from, symbolic)));
  if (!is_held(step)) hand_over(link, place, symbolic);
}

template <class Rules>
void Check<Rules>::hand_over(const CheckedLink& link, const schedules::FramePlace& place,
                             Symbolic& symbolic) {
  Rules& progress = at(link.from).progress;
  if (place.segment == 0) symbolic.released(link.first_frame + place.frame);
  progress.payload_released(place);
  progress.send_finished(place, keeper(link.from, symbolic));
}

template <class Rules>
void Check<Rules>::take(CheckedLink& link, Symbolic& symbolic) {
  Rules& progress = at(link.to).progress;
  const schedules::FramePlace place = progress.next_receive(link.sender);
  if (place.segment == 0)
    symbolic.receive(link.to, place.step, link.first_frame + place.frame,
                     progress.step(place).written);
  if (is_held(progress.step(place))) hand_over(link, link.in_flight.front(), symbolic);
  link.in_flight.pop_front();
  progress.received(link.sender, keeper(link.to, symbolic));
}

// Takes one frame and sends one, if possible. Without credits a send needs a receiver that takes
// the frame at once.
template <class Rules>
bool Check<Rules>::advance(CheckedLink& link, Symbolic& symbolic) {
  const bool taken = !link.in_flight.empty() && next_take(link, 0);
  if (taken) take(link, symbolic);
  const bool room =
      link.in_flight.size() < options_.credits || (options_.credits == 0 && next_take(link, 0));
  const bool sent = room && may_send(link);
  if (sent) send(link, symbolic);
  if (sent && options_.credits == 0) take(link, symbolic);
  if (taken || sent) {
    changed(link.from, symbolic);
    changed(link.to, symbolic);
  }
  return taken || sent;
}

// Queues the rank, which may be able to do more now.
template <class Rules>
void Check<Rules>::changed(int rank, Symbolic& symbolic) {
  CheckedRank<Rules>& r = at(rank);
  if (!r.told && r.progress.base() != 0) {
    r.told = true;
    symbolic.rank_done(rank);
  }
  if (r.queued) return;
  r.queued = true;
  ready_.push_back(rank);
}

template <class Rules>
void Check<Rules>::simulate(Symbolic& symbolic) {
  for (int rank = 0; rank < size_; ++rank) {
    at(rank).progress.open(keeper(rank, symbolic));
    changed(rank, symbolic);
  }
  while (!ready_.empty() && symbolic.problem().empty()) {
    const int rank = ready_.front();
    ready_.pop_front();
    at(rank).queued = false;
    for (const std::size_t link : at(rank).links)
      while (symbolic.problem().empty() && advance(links_[link], symbolic)) {
      }
  }
}

// Whether the step's frame has not been sent, or its link still reads it.
template <class Rules>
bool Check<Rules>::waits_to_send(int rank, std::uint64_t segment, std::uint32_t step) const {
  const Rules& progress = at(rank).progress;
  for (const std::size_t index : at(rank).links) {
    const CheckedLink& link = links_[index];
    if (link.from != rank) continue;
    for (const schedules::FramePlace& place : link.in_flight)
      if (place.segment == segment && place.step == step) return is_held(progress.step(place));
    for (schedules::FrameOrder order = progress.peer(link.receiver).sends; !order.done();
         order.advance())
      if (order.segment() == segment && link.sends[order.frame()] == step) return true;
  }
  return false;
}

// Returns what each stuck rank waits for: the first step that is not done in its oldest segment.
template <class Rules>
std::string Check<Rules>::standstill() const {
  constexpr int most = 8;
  std::string text;
  int stuck = 0;
  for (int rank = 0; rank < size_; ++rank) {
    const Rules& progress = at(rank).progress;
    if (progress.complete() || ++stuck > most) continue;
    const std::uint64_t segment = progress.base();
    for (std::uint32_t i = 0; i < steps(rank).size(); ++i) {
      const schedules::ProgramStep& step = progress.program().steps()[i];
      const bool receiving = step.receives() && progress.reached(segment, step.slice) <= step.chain;
      if (!receiving && !waits_to_send(rank, segment, i)) continue;
      text += fmt::format("{}{} of segment {} waits to {}", text.empty() ? "deadlock: " : "; ",
                          describe_step(rank, i, steps(rank)[i], schedules_.front().slices),
                          segment, receiving ? "receive" : "send");
      break;
    }
  }
  if (stuck > most) text += fmt::format("; and {} ranks more", stuck - most);
  return text;
}

template <class Rules>
CheckReport Check<Rules>::run(Collective operation, int root) {
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
  Symbolic symbolic(schedules_, operation, root, frames_, options_.in_place);
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

}  // namespace rondo::proof
