// SPDX-License-Identifier: Apache-2.0
//
// Who gives which part of a chunk, who combines it and who takes it.
#include <algorithm>
#include <cstring>

#include "collectives/direct/direct.h"

namespace rondo::direct {

namespace {

// Stays in the first-level cache while it is copied to every output.
constexpr std::size_t block_bytes = std::size_t{8} << 10;

}  // namespace

// Whether this rank's slot shows that part of its input to the others.
bool DirectLane::gives(std::size_t part) const noexcept {
  const bool root = first_->signature.root == rank_;
  switch (plain_) {
    case Collective::broadcast:
      return root;
    case Collective::scatter:
      return root && part != rank_;
    case Collective::all_gather:
      return part == rank_;
    case Collective::gather:
      return part == rank_ && !root;
    default:
      return part != rank_;
  }
}

// Whether this rank copies something from that one, which may be itself, into its output: a part of
// its input, or where the operation reduces the part that the other has combined.
bool DirectLane::takes_from(std::size_t peer) const noexcept {
  const bool root = first_->signature.root == rank_;
  switch (plain_) {
    case Collective::broadcast:
    case Collective::scatter:
      return peer == first_->signature.root;
    case Collective::all_gather:
    case Collective::all_to_all:
      return true;
    case Collective::gather:
      return root;
    case Collective::reduce:
      return root && peer != rank_;
    case Collective::reduce_scatter:
      return false;
    default:
      return peer != rank_;
  }
}

// Whether others read the input of that rank.
bool DirectLane::needs_in(std::size_t rank) const noexcept {
  const bool root = first_->signature.root == rank;
  if (plain_ == Collective::broadcast || plain_ == Collective::scatter) return root;
  return plain_ != Collective::gather || !root;
}

// Whether others could write the output of that rank.
bool DirectLane::gets_out(std::size_t rank) const noexcept {
  return plain_ == Collective::all_reduce ||
         (plain_ == Collective::reduce && first_->signature.root == rank);
}

// What of a rank's input others read.
std::size_t DirectLane::in_bytes(std::size_t rank) const noexcept {
  const bool one_block = plain_ == Collective::all_gather || plain_ == Collective::gather;
  return (one_block ? shape_.block_count(rank) : shape_.total()) * element_;
}

std::size_t DirectLane::most_in_bytes() const noexcept {
  const bool one_block = plain_ == Collective::all_gather || plain_ == Collective::gather;
  return (one_block ? shape_.most() : shape_.total()) * element_;
}

std::size_t DirectLane::in_offset(const DirectPart& part) const noexcept {
  const bool one_block = plain_ == Collective::all_gather || plain_ == Collective::gather;
  return (one_block ? part.block : part.buffer) * element_;
}

// Where a peer's input, or the result that it combined, can be read.
const std::byte* DirectLane::given(std::size_t peer, std::uint64_t chunk,
                                   const DirectPart& part) const noexcept {
  if (in_windows_) return ins_[peer] + in_offset(part);
  return areas_[peer].slot(base_ + chunk) + part.slot;
}

const std::byte* DirectLane::value_of(std::size_t peer) const noexcept {
  if (peer == rank_) return first_->in;
  DirectPost& post = areas_[peer].control().posts[sequence_ % 2];
  return in_bytes(peer) <= post.value.size() ? post.value.data() : areas_[peer].eager(sequence_);
}

// sources_ to out, in rank order.
void DirectLane::reduce(std::byte* out, std::size_t count) {
  if (!in_steps_ || is_integer(first_->signature.type) || element_ > 2 || size_ < 3)
    return reduce_(out, sources_.data(), size_, count, finish_);
  // One source at a time from a copy of the first two's sum: out may be one of the sources that
  // follow.
  alignas(64) std::byte sum[block_bytes];
  for (std::size_t at = 0; at < count; at += block_bytes / element_) {
    const std::size_t length = std::min(count - at, block_bytes / element_);
    kernels::PairReduction::Value before{sources_[0] + at * element_, true};
    for (std::size_t i = 1; i < size_; ++i) {
      const bool last = i + 1 == size_;
      pair_.combine(last ? out + at * element_ : sum, before, {sources_[i] + at * element_, true},
                    length, last);
      before = {sum, false};
    }
  }
}

void DirectLane::finish_value() {
  if (plain_ == Collective::barrier) return;
  if (reducing_) return reduce_values();
  for (std::size_t peer = 0; peer < size_; ++peer) {
    if (!takes_from(peer)) continue;
    // Both blocks of an all_to_all are of one size.
    const bool own_block = plain_ == Collective::scatter || plain_ == Collective::all_to_all;
    const bool whole_value = plain_ == Collective::all_gather || plain_ == Collective::gather;
    const std::size_t bytes = shape_.block_count(own_block ? rank_ : parts_index(peer)) * element_;
    const std::byte* const from =
        value_of(peer) + (whole_value ? 0 : shape_.block_offset(own_block ? rank_ : 0) * element_);
    std::byte* const to =
        first_->out +
        (plain_ == Collective::scatter ? 0 : shape_.block_offset(parts_index(peer)) * element_);
    if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
    if (peer != rank_) bytes_loaded_ += bytes;
  }
}

// Of the parts, that of a rank: a broadcast has only one.
std::size_t DirectLane::parts_index(std::size_t rank) const noexcept {
  return shape_.parts() == 1 ? 0 : rank;
}

void DirectLane::reduce_values() {
  const schedules::Signature& s = first_->signature;
  if (plain_ == Collective::reduce && s.root != rank_) return;
  const bool scatter = plain_ == Collective::reduce_scatter;
  const std::size_t count = scatter ? shape_.block_count(rank_) : s.count;
  if (count == 0) return;
  const std::size_t own = scatter ? shape_.block_offset(rank_) * element_ : 0;
  for (std::size_t peer = 0; peer < size_; ++peer) sources_[peer] = value_of(peer) + own;
  reduce(first_->out, count);
  bytes_loaded_ += count * element_ * (size_ - 1);
}

// A slot may be filled again when nobody needs what it held `direct_slots` chunks ago.
bool DirectLane::slot_free(std::uint64_t chunk) noexcept {
  const std::uint64_t number = base_ + chunk;
  if (number < direct_slots || !slots_) return true;
  const std::uint64_t before = number - direct_slots + 1;
  return all_past(&DirectCounters::combined, before, free_cursor_) &&
         all_past(&DirectCounters::copied_out, before, free_cursor_);
}

bool DirectLane::copy_in() {
  const std::uint64_t all = shape_.chunks();
  if (copied_in_ == all) return false;
  bool any = false;
  for (std::size_t i = 0; i < shape_.parts(); ++i) any |= gives(i);
  if (in_windows_ || !any) {
    copied_in_ = all;
  } else {
    if (!slot_free(copied_in_)) return false;
    std::byte* const slot = areas_[rank_].slot(base_ + copied_in_);
    for (std::size_t i = 0; i < shape_.parts(); ++i) {
      if (!gives(i)) continue;
      const DirectPart part = shape_.part(copied_in_, i);
      if (part.count != 0)
        std::memcpy(slot + part.slot, first_->in + in_offset(part), part.count * element_);
    }
    ++copied_in_;
  }
  publish(&DirectCounters::copied_in, base_ + copied_in_);
  return true;
}

bool DirectLane::combine() {
  const std::uint64_t all = shape_.chunks();
  if (combined_ == all) return false;
  if (!reducing_) {
    combined_ = all;
    publish(&DirectCounters::combined, base_ + combined_);
    return true;
  }
  if (combined_ >= copied_in_ && !in_windows_) return false;
  if (!in_windows_ && !all_past(&DirectCounters::copied_in, base_ + combined_ + 1, in_cursor_))
    return false;
  if (in_windows_ && !slot_free(combined_)) return false;
  const DirectPart part = shape_.part(combined_, rank_);
  if (part.count != 0) {
    for (std::size_t peer = 0; peer < size_; ++peer)
      sources_[peer] = peer == rank_ ? first_->in + in_offset(part) : given(peer, combined_, part);
    store_everywhere(part, areas_[rank_].slot(base_ + combined_) + part.slot);
  }
  ++combined_;
  publish(&DirectCounters::combined, base_ + combined_);
  return true;
}

// Combines sources_ into this rank's slot or output, and into whatever other places want it.
void DirectLane::store_everywhere(const DirectPart& part, std::byte* slot) {
  const schedules::Signature& s = first_->signature;
  const bool scatter = plain_ == Collective::reduce_scatter;
  const bool root_only = plain_ == Collective::reduce;
  const std::size_t offset = (scatter ? part.block : part.buffer) * element_;
  const bool own_out = !root_only || s.root == rank_;
  std::byte* const first = own_out        ? first_->out + offset
                           : out_windows_ ? outs_[s.root] + offset
                                          : slot;
  const bool to_slot = !scatter && !out_windows_ && own_out && !root_only;
  const bool to_all = out_windows_ && !root_only;
  bytes_loaded_ += part.count * element_ * (size_ - 1);
  for (std::size_t at = 0; at < part.count; at += block_bytes / element_) {
    const std::size_t count = std::min(part.count - at, block_bytes / element_);
    const std::size_t here = at * element_, bytes = count * element_;
    reduce(first + here, count);
    for (const std::byte*& source : sources_) source += bytes;
    if (to_slot) std::memcpy(slot + here, first + here, bytes);
    if (!to_all) continue;
    for (std::size_t peer = 0; peer < size_; ++peer)
      if (peer != rank_) std::memcpy(outs_[peer] + offset + here, first + here, bytes);
  }
}

bool DirectLane::copy_out() {
  const std::uint64_t all = shape_.chunks();
  if (copied_out_ == all) return false;
  bool any = false;
  for (std::size_t peer = 0; peer < size_; ++peer) any |= takes_from(peer);
  if (out_windows_ || !any) {
    if (copied_out_ == combined_) return false;
    copied_out_ = combined_;
    publish(&DirectCounters::copied_out, base_ + copied_out_);
    return true;
  }
  const auto ready = reducing_ ? &DirectCounters::combined : &DirectCounters::copied_in;
  if (!(in_windows_ && !reducing_) && !all_past(ready, base_ + copied_out_ + 1, combined_cursor_))
    return false;
  for (std::size_t peer = 0; peer < size_; ++peer) take(peer);
  ++copied_out_;
  publish(&DirectCounters::copied_out, base_ + copied_out_);
  return true;
}

// This rank's share of the chunk that it copies out next, from one peer.
void DirectLane::take(std::size_t peer) {
  if (!takes_from(peer)) return;
  const DirectPart theirs = shape_.part(copied_out_, parts_index(peer));
  const bool own_part = plain_ == Collective::scatter || plain_ == Collective::all_to_all;
  const DirectPart part = own_part ? shape_.part(copied_out_, rank_) : theirs;
  if (part.count == 0) return;
  const std::byte* const from = peer == rank_ ? first_->in + in_offset(part)
                                : reducing_   ? areas_[peer].slot(base_ + copied_out_) + part.slot
                                              : given(peer, copied_out_, part);
  std::byte* const to =
      first_->out + (plain_ == Collective::scatter ? part.block : theirs.buffer) * element_;
  if (to == from) return;
  std::memcpy(to, from, part.count * element_);
  if (peer != rank_) bytes_loaded_ += part.count * element_;
}

}  // namespace rondo::direct
