// SPDX-License-Identifier: Apache-2.0
//
// Starts to move the bytes of operations whose buffers are on a GPU. Where all buffers are in
// windows, a kernel reads the inputs and writes the outputs of all ranks. What is not goes through
// slots in memory of the GPUs, where kernels combine too. If a rank has none there, chunks go
// through slots in host memory, as they do where no GPU is: the GPU copies between its buffers and
// pinned carriers, and this rank's processor between these and the slots, and combines there.
#include <algorithm>
#include <array>

#include "base/copy.h"
#include "collectives/direct/direct.h"

namespace rondo::direct {

bool DirectLane::is_ready_on_gpu() {
  GpuMover& mover = *next_->on_gpu.mover;
  if (!mover.has_reached(next_->on_gpu.mark)) return false;
  if (!next_rules_->eager || next_->on_gpu.in_is_pinned) return true;
  if (mover.wants_value()) {
    list_pieces(*next_, base::traits_of(next_->signature.operation).gathers(), next_->in_bytes);
    if (pieces_.empty()) return true;
  }
  return mover.load_value(next_->in, pieces_);
}

// Blocks with gaps between them lie in a value without gaps.
void DirectLane::list_pieces(const operation::DirectOperation& operation, bool one_block,
                             std::size_t bytes) {
  pieces_.clear();
  if (one_block || operation.blocks().empty()) {
    if (bytes != 0) pieces_.push_back({0, 0, bytes});
    return;
  }
  const std::size_t element = size_of(operation.signature.type);
  std::size_t in_value = 0;
  for (const schedules::Range& block : operation.blocks()) {
    const std::size_t length = block.count * element;
    if (length != 0) pieces_.push_back({block.offset * element, in_value, length});
    in_value += length;
  }
}

// Whether the next operation is posted now.
bool DirectLane::post_next_on_gpu() {
  const operation::DirectOperation* const before = next_;
  post_more();
  return next_ != before;
}

bool DirectLane::prepare_sleep() {
  bool quiet = true;
  if (queue_.first() != next_ && queue_.first()->on_gpu.mover != nullptr)
    quiet = queue_.first()->on_gpu.mover->prepare_sleep(nullptr);
  if (next_ == nullptr || next_->on_gpu.mover == nullptr) return quiet;
  // A mark that a pass has seen reached is no news while the operation must wait for others. One
  // that is reached just now lets the next pass do more.
  operation::GpuMark& mark = next_->on_gpu.mark;
  const bool seen = mark.reached;
  if (next_->on_gpu.mover->has_reached(mark) && !seen) return false;
  return next_->on_gpu.mover->prepare_sleep(&mark) && quiet;
}

std::string DirectLane::awaited_gpu() const {
  if (queue_.empty() || queue_.first()->on_gpu.mover == nullptr) return {};
  const GpuMover& mover = *queue_.first()->on_gpu.mover;
  const std::string before = mover.port().awaited(queue_.first()->on_gpu.mark);
  return before.empty() ? mover.awaited(queue_.first() != next_) : before;
}

// Whether that part of this rank's input goes to its slot: the others read it there, or this rank
// combines it there.
bool DirectLane::loads_part(std::size_t part) const noexcept {
  return form_->roles.gives(part) || (form_->roles.reducing() && part == rank_);
}

void DirectLane::copy_in_on_gpu(std::uint64_t chunk) {
  GpuMover& mover = *queue_.first()->on_gpu.mover;
  if (goes_through_host())
    copy_in_to_carrier(chunk);
  else
    copy_in_to_gpu_slot(chunk);
  mover.end_step(Counter::copied_in);
}

void DirectLane::copy_in_to_carrier(std::uint64_t chunk) {
  if (queue_.first()->on_gpu.in_is_pinned) return;  // it is its own carrier
  GpuMover& mover = *queue_.first()->on_gpu.mover;
  std::byte* const carrier = mover.carrier(Counter::copied_in, chunk);
  for (std::size_t i = 0; i < form_->roles.parts(); ++i) {
    if (!loads_part(i)) continue;
    const DirectPart part = form_->shape.part(chunk, i);
    mover.to_host(Counter::copied_in, carrier + part.slot, queue_.first()->in + in_offset(part),
                  part.count * form_->element);
  }
}

// Parts that are neighbours in the buffer and in the slot become one copy.
void DirectLane::copy_in_to_gpu_slot(std::uint64_t chunk) {
  GpuMover& mover = *queue_.first()->on_gpu.mover;
  Taken run;
  const auto copy = [&] {
    if (queue_.first()->on_gpu.in_is_pinned)
      mover.to_device(Counter::copied_in, run.to, run.from, run.bytes);
    else
      mover.on_device(Counter::copied_in, run.to, run.from, run.bytes);
  };
  for (std::size_t i = 0; i < form_->roles.parts(); ++i) {
    if (!form_->roles.gives(i)) continue;
    const DirectPart part = form_->shape.part(chunk, i);
    const std::byte* const from = queue_.first()->in + in_offset(part);
    std::byte* const to = slot(rank_, chunk, part);
    const std::size_t bytes = part.count * form_->element;
    if (run.bytes != 0 && from == run.from + run.bytes && to == run.to + run.bytes) {
      run.bytes += bytes;
      continue;
    }
    copy();
    run = {from, to, bytes};
  }
  copy();
}

// The protocol asks once for each step that has landed.
bool DirectLane::landed_on_gpu(Counter kind, std::uint64_t chunk) {
  GpuMover& mover = *queue_.first()->on_gpu.mover;
  if (!mover.landed(kind, chunk)) return false;
  if (kind != Counter::copied_in || !goes_through_host()) return true;
  const std::byte* const carrier = mover.carrier(kind, chunk);
  for (std::size_t i = 0; i < form_->roles.parts(); ++i) {
    if (!loads_part(i)) continue;
    const DirectPart part = form_->shape.part(chunk, i);
    const std::byte* const from = queue_.first()->on_gpu.in_is_pinned
                                      ? queue_.first()->in + in_offset(part)
                                      : carrier + part.slot;
    base::copy_bytes(slot(rank_, chunk, part), from, part.count * form_->element);
  }
  return true;
}

void DirectLane::combine_on_gpu(std::uint64_t chunk) {
  const DirectPart part = form_->shape.part(chunk, rank_);
  if (part.count != 0) {
    bytes_loaded_ += part.count * form_->element * (size_ - 1);
    if (goes_through_host())
      combine_in_host(part, chunk);
    else
      combine_by_kernel(part, chunk);
  }
  queue_.first()->on_gpu.mover->end_step(Counter::combined);
}

// Combines the slots of all ranks, this one's included.
void DirectLane::combine_in_host(const DirectPart& part, std::uint64_t chunk) {
  GpuMover& mover = *queue_.first()->on_gpu.mover;
  const bool reaches_out = queue_.first()->on_gpu.out_is_pinned;
  std::byte* const result = reaches_out ? queue_.first()->out + out_offset(part)
                                        : mover.carrier(Counter::combined, chunk);
  for (std::size_t peer = 0; peer < size_; ++peer) sources_[peer] = slot(peer, chunk, part);
  reduce(result, part.count);
  const std::size_t bytes = part.count * form_->element;
  const ResultPlaces places = form_->roles.result_places(protocol_.ways());
  if (places.slot || places.first == ResultPlaces::First::slot)
    base::copy_bytes(slot(rank_, chunk, part), result, bytes);
  if (places.first == ResultPlaces::First::own_out && !reaches_out)
    mover.to_device(Counter::combined, queue_.first()->out + out_offset(part), result, bytes);
}

void DirectLane::combine_by_kernel(const DirectPart& part, std::uint64_t chunk) {
  std::array<std::byte*, kernels::ReduceArguments::most> outs;
  std::size_t count = 0;
  const ResultPlaces places = form_->roles.result_places(protocol_.ways());
  const std::size_t offset = out_offset(part);
  using First = ResultPlaces::First;
  if (places.first == First::own_out) outs[count++] = queue_.first()->out + offset;
  if (places.first == First::root_out)
    outs[count++] = outs_[queue_.first()->signature.root] + offset;
  if (places.first == First::slot || places.slot) outs[count++] = slot(rank_, chunk, part);
  for (std::size_t peer = 0; peer < size_; ++peer) {
    sources_[peer] =
        peer == rank_ ? queue_.first()->in + in_offset(part) : given(peer, chunk, part);
    if (places.all_outs && peer != rank_) outs[count++] = outs_[peer] + offset;
  }
  const schedules::Signature& s = queue_.first()->signature;
  queue_.first()->on_gpu.mover->reduce(
      {s.type, s.op, s.scale, size_, in_steps_}, sources_,
      scales_inputs_ ? std::span<const double>(input_scales_) : std::span<const double>(),
      std::span(outs).first(count), part.count);
}

// Data that lies in a slot of the GPU need not cross the bus again.
void DirectLane::take_own_pinned(const Taken& block, std::uint64_t chunk) {
  GpuMover& mover = *queue_.first()->on_gpu.mover;
  const DirectPart part = form_->shape.part(chunk, rank_);
  if (goes_through_host())
    mover.to_device(Counter::copied_out, block.to, block.from, block.bytes);
  else
    mover.on_device(Counter::copied_out, block.to, slot(rank_, chunk, part), block.bytes);
}

void DirectLane::copy_out_on_gpu(std::uint64_t chunk) {
  GpuMover& mover = *queue_.first()->on_gpu.mover;
  std::byte* carrier = mover.carrier(Counter::copied_out, chunk);
  for (std::size_t peer = 0; peer < size_; ++peer) {
    if (!form_->roles.takes_from(peer)) continue;
    const Taken block = taken(peer, chunk);
    if (peer != rank_) bytes_loaded_ += block.bytes;
    if (peer == rank_ && queue_.first()->on_gpu.in_is_pinned) {
      take_own_pinned(block, chunk);
      continue;
    }
    if (peer == rank_ || !goes_through_host()) {
      mover.on_device(Counter::copied_out, block.to, block.from, block.bytes);
      continue;
    }
    base::copy_bytes(carrier, block.from, block.bytes);
    mover.to_device(Counter::copied_out, block.to, carrier, block.bytes);
    carrier += block.bytes;
  }
  mover.end_step(Counter::copied_out);
}

}  // namespace rondo::direct
