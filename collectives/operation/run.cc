// SPDX-License-Identifier: Apache-2.0
//
// begin() decides where the values of a call live: in the output where that covers a slice, else in
// staging memory; means of integers and buffers in device memory have all of them there. After
// that a place is arithmetic on segment and slice.
#include "collectives/operation/run.h"

#include <algorithm>

#include "base/copy.h"

namespace rondo::operation {

void Run::begin(const schedules::Program& program, const schedules::Call& call, int rank, int size,
                Room& room) {
  signature_ = call.signature;
  input_scale_ = call.input_scale;
  traits_ = &base::traits_of(signature_.operation);
  in_ = call.in;
  out_ = call.out;
  rank_ = static_cast<std::uint32_t>(rank);
  limit_ = {};
  ranks_ = static_cast<std::size_t>(size);
  element_ = size_of(signature_.type);
  mean_ = traits_->reduces && size > 1 ? kernels::find_integer_mean(signature_.type, signature_.op)
                                       : nullptr;
  value_bytes_ = mean_ != nullptr ? mean_->bytes() : element_;
  lay_out(call, program.slices(), size);
  if (mean_ != nullptr)
    pair_ = kernels::PairReduction(DType::i64, ReduceOp::sum, 1, ranks_);
  else if (traits_->reduces)
    pair_ = kernels::PairReduction(signature_.type, signature_.op, signature_.scale, ranks_);
  else
    pair_ = kernels::PairReduction();
  using Values = schedules::Progress::Values;
  staged_ = (mean_ != nullptr || call.signature.on_device) && call.in_bytes + call.out_bytes != 0;
  progress_.begin(program, layout_.segments(), room, staged_ ? Values::staged : Values::in_buffers);
  staging_ = nullptr;
  staging_needed_ = staged_ || has_values_outside_buffers()
                        ? progress_.window() * layout_.segment_span() * value_bytes_
                        : 0;
  consumed_.reserve(room.peers);
  consumed_.assign(program.peers().size(), 0);
  if (!staged_) progress_.open(keeper());
}

bool Run::has_values_outside_buffers() const noexcept {
  return std::ranges::any_of(program().steps(), [&](const schedules::ProgramStep& s) {
    return s.slice < program().slices() && (s.written || s.writes()) && !out_covers(s.slice);
  });
}

void Run::lay_out(const schedules::Call& call, std::uint32_t slices, int size) {
  if (traits_->has_counts()) {
    offsets_.assign(1, 0);
    for (const std::size_t count : call.counts) offsets_.push_back(offsets_.back() + count);
    layout_ = schedules::Layout(offsets_, call.segment_elements);
    return;
  }
  const std::size_t count = schedules::cut_elements(signature_.operation, signature_.count,
                                                    static_cast<std::size_t>(size));
  layout_ = schedules::Layout(count, call.segment_elements, slices, traits_->blocks);
}

bool Run::in_covers(std::uint32_t slice) const noexcept {
  return base::holds(traits_->in, signature_.root == rank_, slice == rank_);
}

bool Run::out_covers(std::uint32_t slice) const noexcept {
  return base::holds(traits_->out, signature_.root == rank_, slice == rank_);
}

std::size_t Run::count(std::uint64_t segment, std::uint32_t slice) const noexcept {
  return layout_.in_buffer(segment, slice).count;
}

std::size_t Run::input_offset(std::uint64_t segment, std::uint32_t slice) const noexcept {
  return (traits_->gathers() ? layout_.in_block(segment, slice)
                             : layout_.in_buffer(segment, slice).offset) *
         element_;
}

std::size_t Run::output_offset(std::uint64_t segment, std::uint32_t slice) const noexcept {
  return (traits_->scatters() ? layout_.in_block(segment, slice)
                              : layout_.in_buffer(segment, slice).offset) *
         element_;
}

std::byte* Run::staging(std::uint64_t segment, std::uint32_t slice) const noexcept {
  const std::size_t start = segment % progress_.window() * layout_.segment_span();
  return staging_ + (start + layout_.in_staging(segment, slice).offset) * value_bytes_;
}

const std::byte* Run::input(std::uint64_t segment, std::uint32_t slice) const noexcept {
  return staged_ ? staging(segment, slice) : input_in_buffer(segment, slice);
}

std::byte* Run::value(std::uint64_t segment, std::uint32_t slice) const noexcept {
  return staged_ || !out_covers(slice) ? staging(segment, slice)
                                       : out_ + output_offset(segment, slice);
}

// Returns where a value is copied to before it is split: it ends where its parts will end.
std::byte* Run::loaded_place(std::uint64_t segment, std::uint32_t slice) const noexcept {
  return staging(segment, slice) + count(segment, slice) * (value_bytes_ - element_);
}

void Run::append_loads(std::uint64_t segment, std::vector<Copy>& copies) const {
  for (std::uint32_t slice = 0; slice < program().slices(); ++slice)
    if (in_covers(slice))
      append(copies, input_offset(segment, slice), loaded_place(segment, slice),
             count(segment, slice) * element_);
}

void Run::append_stores(std::uint64_t segment, std::vector<Copy>& copies) const {
  for (std::uint32_t slice = 0; slice < program().slices(); ++slice) {
    if (!out_covers(slice)) continue;
    std::byte* const at = staging(segment, slice);
    if (mean_ != nullptr) mean_->join(at, at, count(segment, slice), ranks_);
    append(copies, output_offset(segment, slice), at, count(segment, slice) * element_);
  }
}

// Slices that lie side by side in both places are one copy.
void Run::append(std::vector<Copy>& copies, std::size_t offset, std::byte* at,
                 std::size_t bytes) const {
  if (bytes == 0) return;
  if (!copies.empty() && copies.back().offset + copies.back().bytes == offset &&
      copies.back().staging + copies.back().bytes == at)
    copies.back().bytes += bytes;
  else
    copies.push_back({offset, at, bytes});
}

// Splits this rank's input into its parts.
void Run::split(std::uint64_t segment) noexcept {
  for (std::uint32_t slice = 0; slice < program().slices(); ++slice)
    if (in_covers(slice))
      mean_->split(staging(segment, slice),
                   staged() ? loaded_place(segment, slice) : input_in_buffer(segment, slice),
                   count(segment, slice));
}

void Run::join(std::uint64_t segment) noexcept {
  for (std::uint32_t slice = 0; slice < program().slices(); ++slice)
    if (out_covers(slice))
      mean_->join(out_ + output_offset(segment, slice), staging(segment, slice),
                  count(segment, slice), ranks_);
}

// Stores the segments that are done and opens those that have memory now, for a mean of integers in
// host memory. For other operations lanes::Staging or Progress does so.
void Run::turn_segments() noexcept {
  if (mean_ == nullptr || !staged_ || staged()) return;
  while (progress_.base() < progress_.done()) {
    join(progress_.base());
    progress_.stored();
  }
  while (progress_.opened() < progress_.openable()) loaded();
}

void Run::give_staging(std::byte* staging) noexcept {
  staging_ = staging;
  turn_segments();
}

// Runs a step that keeps without receiving: its value is ready at once.
void Run::keep_local(std::uint64_t segment, const schedules::ProgramStep& step) noexcept {
  const std::size_t elements = count(segment, step.slice);
  if (elements == 0) return;
  std::byte* to = value(segment, step.slice);
  const std::byte* from = step.written ? to : input(segment, step.slice);
  const kernels::PairReduction::Value own{from, !step.written, input_scale_};
  if (traits_->reduces && (pair_.finishes() || (own.input && own.factor != 1))) {
    pair_.finish(to, own, elements);
  } else if (from != to) {
    base::copy_bytes(to, from, elements * value_bytes_);
  }
}

std::size_t Run::bytes_of(const FramePlace& place) const noexcept {
  return count(place.segment, step(place).slice) * value_bytes_;
}

std::optional<transports::Receive> Run::receivable(int peer, std::size_t ahead) const noexcept {
  if (waits_for_staging()) return std::nullopt;
  if (ahead == 0) return receivable(progress_.next_receive(peer));
  const auto place = progress_.later_receive(peer, ahead);
  return place ? receivable(*place) : std::nullopt;
}

std::optional<transports::Receive> Run::receivable(const FramePlace& place) const noexcept {
  if (held_back(place) || !progress_.may_begin(place)) return std::nullopt;
  const std::size_t bytes = bytes_of(place);
  if (bytes == 0) return transports::Receive{};
  const schedules::ProgramStep& s = step(place);
  std::byte* to = value(place.segment, s.slice);
  using schedules::Overwrites;
  // The first test is false when no link reads. Only else does it matter where the input lies.
  if (progress_.must_spare(place, Overwrites::value_and_input) &&
      progress_.must_spare(place, to == input(place.segment, s.slice) ? Overwrites::value_and_input
                                                                      : Overwrites::value))
    return std::nullopt;
  return transports::Receive{s.reduce ? nullptr : to, bytes};
}

std::size_t Run::consume(int peer, std::span<const std::byte> view, double input_scale) noexcept {
  const FramePlace place = next_receive(peer);
  const schedules::ProgramStep& s = step(place);
  std::size_t& consumed = consumed_[static_cast<std::size_t>(peer)];
  const std::size_t elements = std::min(view.size(), bytes_of(place) - consumed) / value_bytes_;
  std::byte* to = value(place.segment, s.slice) + consumed;
  const std::byte* own = s.written ? to : input(place.segment, s.slice) + consumed;
  pair_.combine(to, {view.data(), s.input, input_scale}, {own, !s.written, input_scale_},
                mean_ != nullptr ? elements * mean_->parts : elements, s.keep);
  consumed += elements * value_bytes_;
  return elements * value_bytes_;
}

std::span<const std::byte> Run::placed(int peer) const noexcept {
  const FramePlace place = next_receive(peer);
  return {value(place.segment, step(place).slice), bytes_of(place)};
}

void Run::loaded() noexcept {
  if (mean_ != nullptr) split(progress_.opened());
  progress_.loaded(keeper());
}

void Run::received(int peer) noexcept {
  consumed_[static_cast<std::size_t>(peer)] = 0;
  progress_.received(peer, keeper());
  turn_segments();
}

std::optional<Outgoing> Run::sendable(int peer) const noexcept {
  const FramePlace place = progress_.next_send(peer);
  if (held_back(place) || !progress_.may_send(place)) return std::nullopt;
  const std::size_t bytes = bytes_of(place);
  if (bytes == 0) return Outgoing{place, {}};
  const schedules::ProgramStep& s = step(place);
  const std::byte* from =
      s.written || s.writes() ? value(place.segment, s.slice) : input(place.segment, s.slice);
  return Outgoing{place, {from, bytes}};
}

FramePlace Run::send_started(int peer) noexcept {
  return progress_.send_started(peer, keeper());
}

void Run::send_finished(const FramePlace& place) noexcept {
  progress_.send_finished(place, keeper());
  turn_segments();
}

}  // namespace rondo::operation
