// SPDX-License-Identifier: Apache-2.0
#include "collectives/direct/exchange.h"

#include <algorithm>
#include <bit>

#include "base/copy.h"
#include "base/mix.h"

namespace rondo::direct {

namespace {

// A block of this size stays in the first-level cache while it is copied to every output.
constexpr std::size_t block_bytes = std::size_t{8} << 10;

// Chunks through slots in host memory: see slot_chunk_bytes(). What all ranks of a device give in a
// chunk must fit into one carrier.
std::size_t host_chunk_bytes(const schedules::Signature& s, std::size_t slot_bytes,
                             std::size_t ranks) noexcept {
  constexpr std::size_t least = std::size_t{128} << 10;
  const bool shares_carrier = s.on_device && base::traits_of(s.operation).gathers();
  return slot_chunk_bytes(s, shares_carrier ? slot_bytes / ranks : slot_bytes, least);
}

std::uint64_t hash_of(const schedules::Signature& s) noexcept {
  const auto code =
      static_cast<std::uint64_t>(s.operation) | static_cast<std::uint64_t>(s.on_device) << 7 |
      static_cast<std::uint64_t>(s.type) << 8 | static_cast<std::uint64_t>(s.op) << 16 |
      static_cast<std::uint64_t>(s.algorithm) << 24 | static_cast<std::uint64_t>(s.root) << 32;
  return base::mix_hash(base::mix_hash(base::mix_hash(base::mix_hash(1, code), s.count),
                                       std::bit_cast<std::uint64_t>(s.scale)),
                        s.plan);
}

}  // namespace

// Large chunks take fewer steps, and several of a call let ranks work at once.
std::size_t slot_chunk_bytes(const schedules::Signature& s, std::size_t slot_bytes,
                             std::size_t least) noexcept {
  constexpr std::size_t chunks_wanted = 4;
  if (schedules::is_blocked(s.operation)) return slot_bytes;
  const std::size_t bytes = s.count * size_of(s.type);
  return std::min(slot_bytes, std::max(least, bytes / chunks_wanted));
}

// Forms.

bool Form::serves(const operation::DirectOperation& operation) const noexcept {
  return lasts && operation.blocks().empty() && signature == operation.signature &&
         posted == operation.posted;
}

Exchange::Exchange(const DirectFlags& flags, const Protocol<DirectFlags>& protocol, bool in_steps,
                   Priority lane)
    : ins(flags.size()),
      outs(flags.size()),
      device_slots(flags.size()),
      sources(flags.size()),
      flags_(flags),
      protocol_(protocol),
      size_(flags.size()),
      rank_(flags.rank()),
      in_steps_(in_steps),
      lane_(lane),
      input_scales_(flags.size(), 1) {}

void Exchange::set_operation(const operation::DirectOperation& operation) {
  operation_ = &operation;
  if (form_->turn == operation.turn) return;
  if (!form_->serves(operation)) {
    form_ = form_ == &forms_[0] ? &forms_[1] : &forms_[0];
    if (!form_->serves(operation)) make_form(operation);
  }
  form_->turn = operation.turn;
}

void Exchange::make_form(const operation::DirectOperation& operation) {
  const schedules::Signature& s = operation.signature;
  if (form_->hash == 0 || operation.posted != form_->posted)
    form_->hash = hash_of(operation.posted);
  form_->posted = operation.posted;
  form_->signature = s;
  form_->lasts = operation.blocks().empty();
  form_->roles = Roles(schedules::without_counts(s.operation), s.root, rank_, size_);
  form_->element = size_of(s.type);
  form_->shape = DirectShape(s, size_, operation.blocks(),
                             host_chunk_bytes(s, direct_slot_bytes(lane_), size_));
  const bool reducing = form_->roles.reducing();
  const bool barrier = form_->roles.plain() == Collective::barrier;
  const std::size_t most = barrier ? 0 : form_->most_in_bytes();
  form_->eager = most <= most_eager_bytes;
  form_->ring = form_->eager ? ring_for(most) : Ring::posts;
  form_->reduce = reducing ? kernels::find_reduce(s.type, s.op) : nullptr;
  form_->scaled_sum = schedules::sums_floats(s) ? kernels::find_scaled_sum(s.type) : nullptr;
  if (in_steps_ && reducing) form_->pair = kernels::PairReduction(s.type, s.op, s.scale, size_);
  form_->finish = kernels::Finish{
      s.scale, s.op == ReduceOp::mean && reducing ? static_cast<double>(size_) : 1.0};
}

void Exchange::set_chunk(std::size_t bytes) {
  form_->lasts = false;
  form_->shape = DirectShape(operation_->signature, size_, operation_->blocks(), bytes);
}

// Places.

std::byte* Exchange::slot(std::size_t rank, std::uint64_t chunk,
                          const DirectPart& part) const noexcept {
  const std::uint64_t number = protocol_.base() + chunk;
  std::byte* const whole = device_slot_bytes == 0
                               ? flags_.area(rank).slot(number)
                               : device_slots[rank] + number % direct_slots * device_slot_bytes;
  return whole + part.slot;
}

const std::byte* Exchange::given(std::size_t peer, std::uint64_t chunk,
                                 const DirectPart& part) const noexcept {
  if (ways().in_windows) return ins[peer] + form_->in_offset(part);
  return slot(peer, chunk, part);
}

const std::byte* Exchange::value_of(std::size_t peer, std::uint64_t number) const noexcept {
  return peer == rank_ && operation_->memory == nullptr
             ? operation_->in
             : flags_.area(peer).value(form_->ring, number);
}

Exchange::Taken Exchange::taken(std::size_t peer, std::uint64_t chunk) const noexcept {
  const DirectPart theirs = part(chunk, form_->roles.part_of(peer));
  const DirectPart own = part(chunk, form_->roles.part_taken(peer));
  const std::byte* const from = peer == rank_             ? own_in(own)
                                : form_->roles.reducing() ? slot(peer, chunk, own)
                                                          : given(peer, chunk, own);
  const std::size_t offset = form_->roles.scatters() ? own.block : theirs.buffer;
  return {from, operation_->out + offset * form_->element, own.count * form_->element};
}

// Reductions.

// The posts of others are not trusted: one that scales where there is no kernel for it does not
// count.
void Exchange::read_input_scales(std::uint64_t sequence) noexcept {
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

void Exchange::reduce(std::byte* out, std::size_t count) {
  if (in_steps_ && !is_integer(operation_->signature.type) && form_->element <= 2 && size_ >= 3)
    return reduce_in_steps(out, count);
  if (scales_inputs_)
    return form_->scaled_sum(out, sources.data(), input_scales_.data(), size_, count,
                             form_->finish);
  form_->reduce(out, sources.data(), size_, count, form_->finish);
}

// Adds one source at a time to a local sum, because out may be one of the later sources.
void Exchange::reduce_in_steps(std::byte* out, std::size_t count) {
  alignas(64) std::byte sum[block_bytes];
  for (std::size_t at = 0; at < count; at += block_bytes / form_->element) {
    const std::size_t length = std::min(count - at, block_bytes / form_->element);
    kernels::PairReduction::Value before{sources[0] + at * form_->element, true, input_scales_[0]};
    for (std::size_t i = 1; i < size_; ++i) {
      const bool last = i + 1 == size_;
      form_->pair.combine(last ? out + at * form_->element : sum, before,
                          {sources[i] + at * form_->element, true, input_scales_[i]}, length, last);
      before = {sum, false};
    }
  }
}

// Values.

// Blocks with gaps between them lie in the post without gaps.
void Exchange::post_value(std::byte* to, const std::byte* packed) const noexcept {
  const bool has_gaps = !form_->roles.gathers() && !operation_->blocks().empty();
  const std::size_t whole = has_gaps ? form_->shape.total() * form_->element : operation_->in_bytes;
  if (packed != nullptr) return base::copy_bytes(to, packed, whole);
  if (!has_gaps) return base::copy_bytes(to, operation_->in, whole);
  for (const schedules::Range& block : operation_->blocks()) {
    const std::size_t bytes = block.count * form_->element;
    base::copy_bytes(to, operation_->in + block.offset * form_->element, bytes);
    to += bytes;
  }
}

void Exchange::finish_value(std::uint64_t number, std::byte* out) {
  if (form_->roles.reducing())
    reduce_values(number, out);
  else
    take_values(number, out);
}

void Exchange::take_values(std::uint64_t number, std::byte* out) {
  const bool packs = operation_->memory != nullptr && !operation_->blocks().empty();
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

void Exchange::reduce_values(std::uint64_t number, std::byte* out) {
  const schedules::Signature& s = operation_->signature;
  if (form_->roles.plain() == Collective::reduce && s.root != rank_) return;
  const bool scatter = form_->roles.scatters();
  const std::size_t count = scatter ? form_->shape.block_count(rank_) : s.count;
  if (count == 0) return;
  const std::size_t own = scatter ? form_->shape.block_offset(rank_) : 0,
                    posted = scatter ? form_->shape.packed_offset(rank_) : 0;
  read_input_scales(protocol_.first());
  const bool reads_post = operation_->memory != nullptr;
  for (std::size_t peer = 0; peer < size_; ++peer)
    sources[peer] =
        value_of(peer, number) + (peer == rank_ && !reads_post ? own : posted) * form_->element;
  reduce(out, count);
  count_combined(count);
}

// Chunks.

// Copies the parts of this rank's input that others read into its slot.
void Exchange::copy_in(std::uint64_t chunk) {
  for (std::size_t i = 0; i < form_->roles.parts(); ++i) {
    if (!form_->roles.gives(i)) continue;
    const DirectPart part = this->part(chunk, i);
    base::copy_bytes(slot(rank_, chunk, part), own_in(part), part.count * form_->element);
  }
}

// Combines this rank's part of everybody's input.
void Exchange::combine(std::uint64_t chunk) {
  const DirectPart part = this->part(chunk, rank_);
  if (part.count == 0) return;
  for (std::size_t peer = 0; peer < size_; ++peer)
    sources[peer] = peer == rank_ ? own_in(part) : given(peer, chunk, part);
  store_result(part, slot(rank_, chunk, part));
}

// Combines the sources into the places of the result, a block at a time.
void Exchange::store_result(const DirectPart& part, std::byte* slot) {
  const std::size_t offset = form_->out_offset(part);
  const ResultPlaces places = form_->roles.result_places(ways());
  std::byte* const first = places.first == ResultPlaces::First::own_out ? own_out(part)
                           : places.first == ResultPlaces::First::root_out
                               ? outs[operation_->signature.root] + offset
                               : slot;
  count_combined(part.count);
  for (std::size_t at = 0; at < part.count; at += block_bytes / form_->element) {
    const std::size_t count = std::min(part.count - at, block_bytes / form_->element);
    const std::size_t here = at * form_->element, bytes = count * form_->element;
    reduce(first + here, count);
    for (const std::byte*& source : sources) source += bytes;
    if (places.slot) base::copy_bytes(slot + here, first + here, bytes);
    if (!places.all_outs) continue;
    for (std::size_t peer = 0; peer < size_; ++peer)
      if (peer != rank_) base::copy_bytes(outs[peer] + offset + here, first + here, bytes);
  }
}

void Exchange::copy_out(std::uint64_t chunk) {
  for (std::size_t peer = 0; peer < size_; ++peer) {
    if (!form_->roles.takes_from(peer)) continue;
    const Taken block = taken(peer, chunk);
    if (block.bytes == 0 || block.to == block.from) continue;
    base::copy_bytes(block.to, block.from, block.bytes);
    if (peer != rank_) bytes_loaded_ += block.bytes;
  }
}

}  // namespace rondo::direct
