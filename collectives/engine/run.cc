// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/run.h"

#include <algorithm>
#include <cstring>

namespace rondo::engine {

void Run::begin(const schedules::Program& program, const schedules::Call& call, int rank, int size,
                Room& room) {
  program_ = &program;
  signature_ = call.signature;
  in_ = call.in;
  out_ = call.out;
  rank_ = static_cast<std::uint32_t>(rank);
  element_ = size_of(signature_.type);
  lay_out(call, size);
  reducing_ = schedules::is_reducing(signature_.operation);
  pair_ = reducing_ ? kernels::PairReduction(signature_.type, signature_.op, signature_.scale,
                                             static_cast<std::size_t>(size))
                    : kernels::PairReduction();
  segments_ = layout_.segments();
  window_ = std::min<std::uint64_t>(program.window(), segments_);
  base_ = 0;
  const bool staged = std::any_of(
      program.steps().begin(), program.steps().end(), [&](const schedules::ProgramStep& s) {
        return s.slice < program.slices() && s.writes() && !out_covers(s.slice);
      });
  staging_ = nullptr;
  staging_needed_ = staged ? window_ * layout_.segment_span() * element_ : 0;
  room.peers = std::max(room.peers, program.peers().size());
  room.slices = std::max<std::size_t>(room.slices, window_ * (program.slices() + 1));
  room.window = std::max<std::size_t>(room.window, window_);
  peers_.reserve(room.peers);
  slices_.reserve(room.slices);
  steps_left_.reserve(room.window);
  peers_.clear();
  for (const schedules::ProgramPeer& p : program.peers())
    peers_.push_back({schedules::FrameOrder(p.receive_table, segments_),
                      schedules::FrameOrder(p.send_table, segments_), 0});
  slices_.assign(window_ * (program.slices() + 1), {});
  steps_left_.assign(window_, 0);
  for (std::uint64_t s = 0; s < window_; ++s) open_segment(s);
  while (base_ < segments_ &&
         steps_left_[base_ % window_] == 0) {  // a rank alone, or one without any part in it
    ++base_;
    if (base_ + window_ <= segments_) open_segment(base_ + window_ - 1);
  }
}

void Run::begin_idle(const schedules::Program& program) noexcept {
  program_ = &program;
  staging_ = nullptr;
  staging_needed_ = 0;
  segments_ = 1;
  base_ = 0;
  peers_.clear();
}

void Run::lay_out(const schedules::Call& call, int size) {
  const Collective operation = signature_.operation;
  if (schedules::has_counts(operation)) {
    offsets_.assign(1, 0);
    for (const std::size_t count : call.counts) offsets_.push_back(offsets_.back() + count);
    layout_ = schedules::Layout(offsets_, call.segment_elements);
    return;
  }
  const bool whole = operation == Collective::all_to_all;  // the count is of all blocks
  const std::size_t count =
      whole ? signature_.count / static_cast<std::size_t>(size) : signature_.count;
  layout_ = schedules::Layout(count, call.segment_elements, program_->slices(),
                              schedules::is_blocked(operation));
}

Run::SliceRun& Run::slice_run(std::uint64_t segment, std::uint32_t slice) noexcept {
  return slices_[segment % window_ * (program_->slices() + 1) + slice];
}

const Run::SliceRun& Run::slice_run(std::uint64_t segment, std::uint32_t slice) const noexcept {
  return slices_[segment % window_ * (program_->slices() + 1) + slice];
}

bool Run::out_covers(std::uint32_t slice) const noexcept {
  switch (schedules::without_counts(signature_.operation)) {
    case Collective::reduce:
    case Collective::gather:
      return signature_.root == rank_;
    case Collective::reduce_scatter:
    case Collective::scatter:
      return slice == rank_;
    default:
      return true;
  }
}

std::size_t Run::count(std::uint64_t segment, std::uint32_t slice) const noexcept {
  return layout_.in_buffer(segment, slice).count;
}

const std::byte* Run::input(std::uint64_t segment, std::uint32_t slice) const noexcept {
  const Collective plain = schedules::without_counts(signature_.operation);
  const bool own_block = plain == Collective::all_gather || plain == Collective::gather;
  return in_ +
         (own_block ? layout_.in_block(segment, slice) : layout_.in_buffer(segment, slice).offset) *
             element_;
}

std::byte* Run::value(std::uint64_t segment, std::uint32_t slice) const noexcept {
  if (!out_covers(slice)) {
    const std::size_t start = segment % window_ * layout_.segment_span();
    return staging_ + (start + layout_.in_staging(segment, slice).offset) * element_;
  }
  const Collective plain = schedules::without_counts(signature_.operation);
  const bool own_block = plain == Collective::reduce_scatter || plain == Collective::scatter;
  return out_ +
         (own_block ? layout_.in_block(segment, slice) : layout_.in_buffer(segment, slice).offset) *
             element_;
}

void Run::open_segment(std::uint64_t segment) noexcept {
  steps_left_[segment % window_] = static_cast<std::uint32_t>(program_->steps().size());
  for (std::uint32_t slice = 0; slice <= program_->slices(); ++slice)
    slice_run(segment, slice) = {};
  for (std::uint32_t slice = 0; slice <= program_->slices(); ++slice)
    run_local_steps(segment, slice);
}

// A step that keeps without receiving needs nobody: its value is ready at once, and only its send,
// if any, is left.
void Run::run_local_steps(std::uint64_t segment, std::uint32_t slice) noexcept {
  SliceRun& state = slice_run(segment, slice);
  const auto chain = program_->chain(slice);
  while (state.next < chain.size()) {
    const schedules::ProgramStep& next = program_->steps()[chain[state.next]];
    if (!next.local()) return;
    keep_local(segment, next);
    ++state.next;
    if (next.to == schedules::no_rank) {
      --steps_left_[segment % window_];
    } else {
      ++state.sends_pending;
    }
  }
}

void Run::keep_local(std::uint64_t segment, const schedules::ProgramStep& step) noexcept {
  const std::size_t elements = count(segment, step.slice);
  if (elements == 0) return;
  std::byte* to = value(segment, step.slice);
  const std::byte* from = step.written ? to : input(segment, step.slice);
  if (reducing_ && pair_.finishes()) {
    pair_.finish(to, {from, !step.written}, elements);
  } else if (from != to) {
    std::memcpy(to, from, elements * element_);
  }
}

FramePlace Run::next_receive(int peer) const noexcept {
  const schedules::FrameOrder& order = this->peer(peer).receives;
  return {order.segment(), order.frame(),
          program_->peers()[static_cast<std::size_t>(peer)].receives[order.frame()]};
}

std::size_t Run::bytes_of(const FramePlace& place) const noexcept {
  return count(place.segment, step(place).slice) * element_;
}

std::optional<transports::Receive> Run::receivable(int peer) const noexcept {
  const FramePlace place = next_receive(peer);
  if (!in_window(place.segment) || waits_for_staging()) return std::nullopt;
  const schedules::ProgramStep& s = step(place);
  const SliceRun& state = slice_run(place.segment, s.slice);
  if (state.next != s.chain || fenced(place)) return std::nullopt;
  const std::size_t bytes = bytes_of(place);
  if (bytes == 0) return transports::Receive{};
  std::byte* to = value(place.segment, s.slice);
  // A link may still be reading what this frame would overwrite.
  if (state.sends_pending != 0 && (s.written || to == input(place.segment, s.slice)))
    return std::nullopt;
  return transports::Receive{s.reduce ? nullptr : to, bytes};
}

std::size_t Run::consume(int peer, std::span<const std::byte> view) noexcept {
  const FramePlace place = next_receive(peer);
  const schedules::ProgramStep& s = step(place);
  PeerRun& state = this->peer(peer);
  const std::size_t elements = std::min(view.size(), bytes_of(place) - state.consumed) / element_;
  std::byte* to = value(place.segment, s.slice) + state.consumed;
  const std::byte* own = s.written ? to : input(place.segment, s.slice) + state.consumed;
  // In rank order, so that ranks which combine the same two values do it the same way, NaNs
  // included.
  const bool theirs_first = s.from < static_cast<int>(rank_);
  const kernels::PairReduction::Value theirs{view.data(), s.input}, mine{own, !s.written};
  pair_.combine(to, theirs_first ? theirs : mine, theirs_first ? mine : theirs, elements, s.keep);
  state.consumed += elements * element_;
  return elements * element_;
}

std::span<const std::byte> Run::placed(int peer) const noexcept {
  const FramePlace place = next_receive(peer);
  return {value(place.segment, step(place).slice), bytes_of(place)};
}

void Run::received(int peer) noexcept {
  const FramePlace place = next_receive(peer);
  const schedules::ProgramStep& s = step(place);
  PeerRun& state = this->peer(peer);
  state.consumed = 0;
  state.receives.advance();
  SliceRun& slice = slice_run(place.segment, s.slice);
  ++slice.next;
  if (s.to != schedules::no_rank) ++slice.sends_pending;
  run_local_steps(place.segment, s.slice);
  if (s.to == schedules::no_rank) step_finished(place.segment);
}

std::optional<Outgoing> Run::sendable(int peer) const noexcept {
  const schedules::FrameOrder& order = this->peer(peer).sends;
  const FramePlace place{order.segment(), order.frame(),
                         program_->peers()[static_cast<std::size_t>(peer)].sends[order.frame()]};
  if (!in_window(place.segment)) return std::nullopt;
  const schedules::ProgramStep& s = step(place);
  const std::uint32_t next = slice_run(place.segment, s.slice).next;
  if (s.writes() ? next <= s.chain : next != s.chain || fenced(place)) return std::nullopt;
  const std::size_t bytes = bytes_of(place);
  if (bytes == 0) return Outgoing{place, {}};
  const std::byte* from =
      s.written || s.writes() ? value(place.segment, s.slice) : input(place.segment, s.slice);
  return Outgoing{place, {from, bytes}};
}

FramePlace Run::send_started(int peer) noexcept {
  const FramePlace place = sendable(peer)->place;
  const schedules::ProgramStep& s = step(place);
  this->peer(peer).sends.advance();
  if (!s.writes()) {
    SliceRun& state = slice_run(place.segment, s.slice);
    ++state.sends_pending;
    ++state.next;
    run_local_steps(place.segment, s.slice);
  }
  return place;
}

void Run::payload_released(const FramePlace& place) noexcept {
  --slice_run(place.segment, step(place).slice).sends_pending;
}

void Run::send_finished(const FramePlace& place) noexcept {
  step_finished(place.segment);
}

void Run::step_finished(std::uint64_t segment) noexcept {
  --steps_left_[segment % window_];
  while (base_ < segments_ && steps_left_[base_ % window_] == 0) {
    ++base_;
    if (base_ + window_ <= segments_) open_segment(base_ + window_ - 1);
  }
}

}  // namespace rondo::engine
