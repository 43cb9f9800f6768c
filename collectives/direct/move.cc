// SPDX-License-Identifier: Apache-2.0
//
// Moves the bytes of values and chunks. protocol.h decides when.
#include <algorithm>

#include "base/copy.h"
#include "collectives/direct/direct.h"

namespace rondo::direct {

namespace {

// A block of this size stays in the first-level cache while it is copied to every output.
constexpr std::size_t block_bytes = std::size_t{8} << 10;

}  // namespace

// Bytes of a rank's input that others may read.
std::size_t DirectLane::in_bytes(std::size_t rank) const noexcept {
  return (form_->roles.gathers() ? form_->shape.block_count(rank) : form_->shape.end()) *
         form_->element;
}

std::size_t DirectLane::most_in_bytes() const noexcept {
  return (form_->roles.gathers() ? form_->shape.most() : form_->shape.total()) * form_->element;
}

std::size_t DirectLane::in_offset(const DirectPart& part) const noexcept {
  return (form_->roles.gathers() ? part.block : part.buffer) * form_->element;
}

std::size_t DirectLane::out_offset(const DirectPart& part) const noexcept {
  return (form_->roles.scatters() ? part.block : part.buffer) * form_->element;
}

std::byte* DirectLane::slot(std::size_t rank, std::uint64_t chunk,
                            const DirectPart& part) const noexcept {
  const std::uint64_t number = protocol_.base() + chunk;
  std::byte* const whole = gpu_slot_bytes_ == 0
                               ? flags_.area(rank).slot(number)
                               : gpu_slots_[rank] + number % direct_slots * gpu_slot_bytes_;
  return whole + part.slot;
}

// Where a peer's input can be read.
const std::byte* DirectLane::given(std::size_t peer, std::uint64_t chunk,
                                   const DirectPart& part) const noexcept {
  if (protocol_.ways().in_windows) return ins_[peer] + in_offset(part);
  return slot(peer, chunk, part);
}

const std::byte* DirectLane::value_of(std::size_t peer, std::uint64_t number) const noexcept {
  return peer == rank_ && queue_.first()->on_gpu.mover == nullptr
             ? queue_.first()->in
             : flags_.area(peer).value(form_->ring, number);
}

// Reads from the posts what each rank's input is multiplied by: seldom by anything but 1. The posts
// of others are not trusted: one that scales where there is no kernel for it does not count.
void DirectLane::read_input_scales(std::uint64_t sequence) noexcept {
  bool any = false;
  if (form_->scaled_sum != nullptr)
    for (std::size_t rank = 0; rank < size_; ++rank) any |= flags_.scales_input(rank, sequence);
  if (!any && !scales_inputs_) return;
  scales_inputs_ = any;
  for (std::size_t rank = 0; rank < size_; ++rank)
    input_scales_[rank] = any && flags_.scales_input(rank, sequence)
                              ? flags_.area(rank).details(sequence).input_scale
                              : 1;
}

// Reduces sources_ into out, in rank order.
void DirectLane::reduce(std::byte* out, std::size_t count) {
  if (in_steps_ && !is_integer(queue_.first()->signature.type) && form_->element <= 2 && size_ >= 3)
    return reduce_in_steps(out, count);
  if (scales_inputs_)
    return form_->scaled_sum(out, sources_.data(), input_scales_.data(), size_, count,
                             form_->finish);
  form_->reduce(out, sources_.data(), size_, count, form_->finish);
}

// Adds one source at a time to a local sum, because out may be one of the later sources.
void DirectLane::reduce_in_steps(std::byte* out, std::size_t count) {
  alignas(64) std::byte sum[block_bytes];
  for (std::size_t at = 0; at < count; at += block_bytes / form_->element) {
    const std::size_t length = std::min(count - at, block_bytes / form_->element);
    kernels::PairReduction::Value before{sources_[0] + at * form_->element, true, input_scales_[0]};
    for (std::size_t i = 1; i < size_; ++i) {
      const bool last = i + 1 == size_;
      form_->pair.combine(last ? out + at * form_->element : sum, before,
                          {sources_[i] + at * form_->element, true, input_scales_[i]}, length,
                          last);
      before = {sum, false};
    }
  }
}

// Writes the value of the newest operation for its post. Blocks with gaps between them lie there
// without gaps.
void DirectLane::post_value(std::byte* to) const noexcept {
  const GpuMover* const mover = next_->on_gpu.mover;
  const bool has_gaps = !form_->roles.gathers() && !next_->blocks().empty();
  const std::size_t whole = has_gaps ? form_->shape.total() * form_->element : next_->in_bytes;
  if (mover != nullptr && !next_->on_gpu.in_is_pinned)
    return base::copy_bytes(to, mover->value(), whole);
  if (!has_gaps) return base::copy_bytes(to, next_->in, whole);
  for (const schedules::Range& block : next_->blocks()) {
    const std::size_t bytes = block.count * form_->element;
    base::copy_bytes(to, next_->in + block.offset * form_->element, bytes);
    to += bytes;
  }
}

void DirectLane::finish_value(std::uint64_t number) {
  if (form_->roles.plain() == Collective::barrier) return;
  GpuMover* const mover =
      queue_.first()->on_gpu.out_is_pinned ? nullptr : queue_.first()->on_gpu.mover;
  std::byte* const out = mover == nullptr ? queue_.first()->out : mover->result();
  if (form_->roles.reducing())
    reduce_values(number, out);
  else
    take_values(number, out);
  if (mover == nullptr) return;
  list_pieces(*queue_.first(), form_->roles.scatters(), queue_.first()->out_bytes);
  // In place, links may still load this rank's block.
  if (form_->roles.gathers() && !queue_.first()->blocks().empty() && queue_.first()->in_bytes != 0)
    std::erase_if(pieces_, [this](const GpuMover::Piece& piece) {
      return queue_.first()->out + piece.in_buffer == queue_.first()->in;
    });
  mover->store_result(queue_.first()->out, pieces_);
}

void DirectLane::take_values(std::uint64_t number, std::byte* out) {
  const bool packs = queue_.first()->on_gpu.mover != nullptr && !queue_.first()->blocks().empty();
  for (std::size_t peer = 0; peer < size_; ++peer) {
    if (!form_->roles.takes_from(peer)) continue;
    // Both blocks of an all_to_all are of one size.
    const bool own_block =
        form_->roles.scatters() || form_->roles.plain() == Collective::all_to_all;
    const std::size_t theirs = form_->roles.part_of(peer);
    const std::size_t bytes = form_->shape.block_count(own_block ? rank_ : theirs) * form_->element;
    const std::byte* const from =
        value_of(peer, number) +
        (form_->roles.gathers()
             ? 0
             : form_->shape.block_offset(own_block ? rank_ : 0) * form_->element);
    const std::size_t block = form_->roles.scatters() ? 0
                              : packs                 ? form_->shape.packed_offset(theirs)
                                                      : form_->shape.block_offset(theirs);
    std::byte* const to = out + block * form_->element;
    if (to != from) base::copy_bytes(to, from, bytes);
    if (peer != rank_) bytes_loaded_ += bytes;
  }
}

void DirectLane::reduce_values(std::uint64_t number, std::byte* out) {
  const schedules::Signature& s = queue_.first()->signature;
  if (form_->roles.plain() == Collective::reduce && s.root != rank_) return;
  const bool scatter = form_->roles.scatters();
  const std::size_t count = scatter ? form_->shape.block_count(rank_) : s.count;
  if (count == 0) return;
  const std::size_t own = scatter ? form_->shape.block_offset(rank_) : 0,
                    posted = scatter ? form_->shape.packed_offset(rank_) : 0;
  read_input_scales(protocol_.first());
  const bool reads_post = queue_.first()->on_gpu.mover != nullptr;
  for (std::size_t peer = 0; peer < size_; ++peer)
    sources_[peer] =
        value_of(peer, number) + (peer == rank_ && !reads_post ? own : posted) * form_->element;
  reduce(out, count);
  bytes_loaded_ += count * form_->element * (size_ - 1);
}

// Copies the parts of this rank's input that others read into its slot.
void DirectLane::copy_in(std::uint64_t chunk) {
  for (std::size_t i = 0; i < form_->roles.parts(); ++i) {
    if (!form_->roles.gives(i)) continue;
    const DirectPart part = form_->shape.part(chunk, i);
    base::copy_bytes(slot(rank_, chunk, part), queue_.first()->in + in_offset(part),
                     part.count * form_->element);
  }
}

// Combines this rank's part of everybody's input.
void DirectLane::combine(std::uint64_t chunk) {
  const DirectPart part = form_->shape.part(chunk, rank_);
  if (part.count == 0) return;
  for (std::size_t peer = 0; peer < size_; ++peer)
    sources_[peer] =
        peer == rank_ ? queue_.first()->in + in_offset(part) : given(peer, chunk, part);
  store_result(part, slot(rank_, chunk, part));
}

// Combines sources_ into the places of the result, a block at a time.
void DirectLane::store_result(const DirectPart& part, std::byte* slot) {
  const std::size_t offset = out_offset(part);
  const ResultPlaces places = form_->roles.result_places(protocol_.ways());
  std::byte* const first = places.first == ResultPlaces::First::own_out
                               ? queue_.first()->out + offset
                           : places.first == ResultPlaces::First::root_out
                               ? outs_[queue_.first()->signature.root] + offset
                               : slot;
  bytes_loaded_ += part.count * form_->element * (size_ - 1);
  for (std::size_t at = 0; at < part.count; at += block_bytes / form_->element) {
    const std::size_t count = std::min(part.count - at, block_bytes / form_->element);
    const std::size_t here = at * form_->element, bytes = count * form_->element;
    reduce(first + here, count);
    for (const std::byte*& source : sources_) source += bytes;
    if (places.slot) base::copy_bytes(slot + here, first + here, bytes);
    if (!places.all_outs) continue;
    for (std::size_t peer = 0; peer < size_; ++peer)
      if (peer != rank_) base::copy_bytes(outs_[peer] + offset + here, first + here, bytes);
  }
}

void DirectLane::copy_out(std::uint64_t chunk) {
  for (std::size_t peer = 0; peer < size_; ++peer)
    if (form_->roles.takes_from(peer)) take(peer, chunk);
}

// This rank's share of a chunk from one peer.
DirectLane::Taken DirectLane::taken(std::size_t peer, std::uint64_t chunk) const noexcept {
  const DirectPart theirs = form_->shape.part(chunk, form_->roles.part_of(peer));
  const DirectPart part = form_->shape.part(chunk, form_->roles.part_taken(peer));
  const std::byte* const from = peer == rank_             ? queue_.first()->in + in_offset(part)
                                : form_->roles.reducing() ? slot(peer, chunk, part)
                                                          : given(peer, chunk, part);
  const std::size_t offset = form_->roles.scatters() ? part.block : theirs.buffer;
  return {from, queue_.first()->out + offset * form_->element, part.count * form_->element};
}

void DirectLane::take(std::size_t peer, std::uint64_t chunk) {
  const Taken block = taken(peer, chunk);
  if (block.bytes == 0 || block.to == block.from) return;
  base::copy_bytes(block.to, block.from, block.bytes);
  if (peer != rank_) bytes_loaded_ += block.bytes;
}

}  // namespace rondo::direct
