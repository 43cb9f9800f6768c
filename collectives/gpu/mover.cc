// SPDX-License-Identifier: Apache-2.0
#include "collectives/gpu/mover.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include <rondo/error.h>

#include "base/copy.h"
#include "base/log.h"
#include "collectives/kernels/device/image.h"
#include "collectives/kernels/device/launch.h"
#include "device/keep.h"
#include "device/phases.h"

namespace rondo::gpu {

using direct::Counter;
using direct::DirectPart;
using direct::Exchange;
using direct::ResultPlaces;

namespace {

constexpr int multiprocessors = 16;  // CUdevice_attribute

// Whether that part of this rank's input goes to its slot: the others read it there, or this rank
// combines it there.
bool loads_part(const Exchange& first, std::size_t part) noexcept {
  const direct::Roles& roles = first.form().roles;
  return roles.gives(part) || (roles.reducing() && part == first.rank());
}

}  // namespace

Mover::Mover(const device::Gpu& gpu, transports::GpuWindows& windows, const Size& size, bool urgent,
             std::shared_ptr<operation::Waker> waker)
    : OnPort(gpu, {.bytes = pinned_bytes(size), .queues = queues}, urgent, std::move(waker)),
      size_(size),
      windows_(windows),
      slots_(gpu, windows, size.gpu_slot_bytes) {
  pieces_.reserve(size.ranks);
  if (size.ranks > kernels::ReduceArguments::most) return;
  if (kernels::device_image() == nullptr) {
    base::log_line(
        base::LogLevel::warning,
        "this build has no kernels for GPUs (it was made without nvcc), so the processor "
        "combines buffers on GPUs");
    return;
  }
  try {
    load_kernels(kernels::device_image());
  } catch (const Error& error) {  // to unload them would wait for the GPU
    base::log_line(base::LogLevel::warning,
                   fmt::format("the kernels of Rondo cannot be used, so the processor combines "
                               "buffers on GPUs: {}",
                               error.what()));
  }
}

void Mover::load_kernels(const void* image) {
  const device::Gpu& gpu = port_.gpu();
  module_ = std::make_unique<device::Module>(gpu, image);
  for (std::size_t type = 0; type < functions_.size(); ++type)
    if (const char* const name = kernels::reduce_kernel(static_cast<DType>(type)))
      functions_[type] = module_->function(name);
  int count = 0;
  gpu.check(gpu.driver().device_get_attribute(&count, multiprocessors, gpu.ordinal()),
            "cuDeviceGetAttribute");
  most_blocks_ = static_cast<unsigned>(std::max(count, 1)) * kernels::blocks_per_multiprocessor;
}

void Mover::abandon() noexcept {
  port_.abandon();
  slots_.abandon();
  device::keep_until_exit(std::move(module_));
}

// An operation uses windows, or buffers that may be registered, until no work for it is under way
// on the GPU.
void Mover::posted(bool has_value) noexcept {
  if (has_value) {
    value_ = Value::none;
    return;
  }
  started_ = landed_ = {};
  if (!std::exchange(holds_windows_, true)) windows_.hold();
}

void Mover::ended() noexcept {
  if (std::exchange(holds_windows_, false)) windows_.release();
}

bool Mover::await_copies(base::TimePoint until) noexcept {
  if (!port_.await_copies(until)) return false;
  ended();
  return true;
}

// Values.

// Blocks with gaps between them lie in a value without gaps.
void Mover::list_pieces(const operation::DirectOperation& operation, bool one_block,
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

bool Mover::load_value(const operation::DirectOperation& next) {
  if (value_ == Value::loaded) return true;
  const device::Current current(port_.gpu());
  device::CopyQueue& loads = port_.queue(load_queue);
  if (value_ == Value::none) {
    list_pieces(next, base::traits_of(next.signature.operation).gathers(), next.in_bytes);
    if (pieces_.empty()) return true;
    for (const Piece& piece : pieces_)
      loads.to_host(port_.memory() + piece.in_value, address_of(next.in + piece.in_buffer),
                    piece.bytes);
    loads.end_batch();
    value_ = Value::loading;
  }
  if (!loads.take_ended()) return false;
  value_ = Value::loaded;
  return true;
}

void Mover::store_result(Exchange& first) {
  const operation::DirectOperation& call = first.operation();
  const direct::Roles& roles = first.form().roles;
  list_pieces(call, roles.scatters(), call.out_bytes);
  // In place, links may still load this rank's block.
  if (roles.gathers() && !call.blocks().empty() && call.in_bytes != 0)
    std::erase_if(pieces_, [&](const Piece& p) { return call.out + p.in_buffer == call.in; });
  if (pieces_.empty()) return;
  const device::Current current(port_.gpu());
  device::CopyQueue& stores = port_.queue(store_queue);
  for (const Piece& piece : pieces_)
    stores.to_device(address_of(call.out + piece.in_buffer), result() + piece.in_value,
                     piece.bytes);
  stores.end_batch();
  storing_ = true;
}

bool Mover::result_landed() {
  if (!storing_) return true;
  const device::Current current(port_.gpu());
  if (!port_.queue(store_queue).take_ended()) return false;
  storing_ = false;
  return true;
}

// Steps. One of a kind is what is enqueued between two calls of end_step(), with the GPU's context
// current.

std::byte* Mover::carrier(Counter kind, std::uint64_t chunk) noexcept {
  return port_.memory() + most_value_bytes * (1 + size_.ranks) +
         (index(kind) * depth + chunk % depth) * size_.slot_bytes;
}

void Mover::to_host(Counter kind, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes != 0) queue(kind).to_host(to, address_of(from), bytes);
}

void Mover::to_device(Counter kind, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes != 0) queue(kind).to_device(address_of(to), from, bytes);
}

void Mover::on_device(Counter kind, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes != 0 && to != from) queue(kind).on_device(address_of(to), address_of(from), bytes);
}

void Mover::end_step(Counter kind) {
  queue(kind).end_batch();
  ++started_[index(kind)];
}

void Mover::copy_in(Exchange& first, std::uint64_t chunk) {
  const device::Current current(port_.gpu());
  if (first.goes_through_host())
    copy_in_to_carrier(first, chunk);
  else
    copy_in_to_slot(first, chunk);
  end_step(Counter::copied_in);
}

void Mover::copy_in_to_carrier(const Exchange& first, std::uint64_t chunk) {
  if (first.operation().in_is_pinned) return;  // it is its own carrier
  std::byte* const to = carrier(Counter::copied_in, chunk);
  for (std::size_t i = 0; i < first.form().roles.parts(); ++i) {
    if (!loads_part(first, i)) continue;
    const DirectPart part = first.part(chunk, i);
    to_host(Counter::copied_in, to + part.slot, first.own_in(part),
            part.count * first.form().element);
  }
}

// Parts that are neighbours in the buffer and in the slot become one copy.
void Mover::copy_in_to_slot(const Exchange& first, std::uint64_t chunk) {
  Exchange::Taken run;
  const auto copy = [&] {
    if (first.operation().in_is_pinned)
      to_device(Counter::copied_in, run.to, run.from, run.bytes);
    else
      on_device(Counter::copied_in, run.to, run.from, run.bytes);
  };
  for (std::size_t i = 0; i < first.form().roles.parts(); ++i) {
    if (!first.form().roles.gives(i)) continue;
    const DirectPart part = first.part(chunk, i);
    const std::byte* const from = first.own_in(part);
    std::byte* const to = first.slot(first.rank(), chunk, part);
    const std::size_t bytes = part.count * first.form().element;
    if (run.bytes != 0 && from == run.from + run.bytes && to == run.to + run.bytes) {
      run.bytes += bytes;
      continue;
    }
    copy();
    run = {from, to, bytes};
  }
  copy();
}

// Bytes that have landed in a carrier go to the slot now.
bool Mover::landed(Exchange& first, Counter kind, std::uint64_t chunk) {
  if (landed_[index(kind)] <= chunk) {
    const device::Current current(port_.gpu());
    if (!queue(kind).take_ended()) return false;
    ++landed_[index(kind)];
  }
  if (kind != Counter::copied_in || !first.goes_through_host()) return true;
  const std::byte* const landed = carrier(kind, chunk);
  for (std::size_t i = 0; i < first.form().roles.parts(); ++i) {
    if (!loads_part(first, i)) continue;
    const DirectPart part = first.part(chunk, i);
    const std::byte* const from =
        first.operation().in_is_pinned ? first.own_in(part) : landed + part.slot;
    base::copy_bytes(first.slot(first.rank(), chunk, part), from,
                     part.count * first.form().element);
  }
  return true;
}

void Mover::combine(Exchange& first, std::uint64_t chunk) {
  const device::Current current(port_.gpu());
  const DirectPart part = first.part(chunk, first.rank());
  if (part.count != 0) {
    first.count_combined(part.count);
    if (first.goes_through_host())
      combine_in_host(first, part, chunk);
    else
      combine_by_kernel(first, part, chunk);
  }
  end_step(Counter::combined);
}

// Combines the slots of all ranks, this one's included.
void Mover::combine_in_host(Exchange& first, const DirectPart& part, std::uint64_t chunk) {
  const bool reaches_out = first.operation().out_is_pinned;
  std::byte* const result = reaches_out ? first.own_out(part) : carrier(Counter::combined, chunk);
  for (std::size_t peer = 0; peer < first.size(); ++peer)
    first.sources[peer] = first.slot(peer, chunk, part);
  first.reduce(result, part.count);
  const std::size_t bytes = part.count * first.form().element;
  const ResultPlaces places = first.form().roles.result_places(first.ways());
  if (places.slot || places.first == ResultPlaces::First::slot)
    base::copy_bytes(first.slot(first.rank(), chunk, part), result, bytes);
  if (places.first == ResultPlaces::First::own_out && !reaches_out)
    to_device(Counter::combined, first.own_out(part), result, bytes);
}

// Combines the sources in rank order and stores the result to all outs.
void Mover::combine_by_kernel(Exchange& first, const DirectPart& part, std::uint64_t chunk) {
  std::array<std::byte*, kernels::ReduceArguments::most> outs;
  std::size_t count = 0;
  const schedules::Signature& s = first.operation().signature;
  const ResultPlaces places = first.form().roles.result_places(first.ways());
  const std::size_t offset = first.form().out_offset(part);
  using First = ResultPlaces::First;
  if (places.first == First::own_out) outs[count++] = first.own_out(part);
  if (places.first == First::root_out) outs[count++] = first.outs[s.root] + offset;
  if (places.first == First::slot || places.slot)
    outs[count++] = first.slot(first.rank(), chunk, part);
  for (std::size_t peer = 0; peer < first.size(); ++peer) {
    const bool own = peer == first.rank();
    first.sources[peer] = own ? first.own_in(part) : first.given(peer, chunk, part);
    if (places.all_outs && !own) outs[count++] = first.outs[peer] + offset;
  }
  kernels::ReduceArguments arguments = kernels::reduce_arguments(
      {s.type, s.op, s.scale, first.size(), first.in_steps()}, first.sources, first.input_scales(),
      std::span(outs).first(count), part.count);
  void* parameters[] = {&arguments};
  const kernels::DeviceGrid grid = kernels::grid_of(part.count * size_of(s.type), most_blocks_);
  queue(Counter::combined)
      .launch(functions_[static_cast<std::size_t>(s.type)], kernels::reduce_kernel(s.type),
              grid.blocks, grid.threads, parameters);
}

// Data that lies in a slot of the GPU need not cross the bus again.
void Mover::take_own_pinned(const Exchange& first, const Exchange::Taken& block,
                            std::uint64_t chunk) {
  const DirectPart part = first.part(chunk, first.rank());
  if (first.goes_through_host())
    to_device(Counter::copied_out, block.to, block.from, block.bytes);
  else
    on_device(Counter::copied_out, block.to, first.slot(first.rank(), chunk, part), block.bytes);
}

void Mover::copy_out(Exchange& first, std::uint64_t chunk) {
  const device::Current current(port_.gpu());
  std::byte* to = carrier(Counter::copied_out, chunk);
  for (std::size_t peer = 0; peer < first.size(); ++peer) {
    if (!first.form().roles.takes_from(peer)) continue;
    const Exchange::Taken block = first.taken(peer, chunk);
    if (peer != first.rank()) first.count_loaded(block.bytes);
    if (peer == first.rank() && first.operation().in_is_pinned) {
      take_own_pinned(first, block, chunk);
      continue;
    }
    if (peer == first.rank() || !first.goes_through_host()) {
      on_device(Counter::copied_out, block.to, block.from, block.bytes);
      continue;
    }
    base::copy_bytes(to, block.from, block.bytes);
    to_device(Counter::copied_out, block.to, to, block.bytes);
    to += block.bytes;
  }
  end_step(Counter::copied_out);
}

// A value that is loaded while an operation is posted is that of a later one.
std::string Mover::awaited_work(bool posted) const {
  try {
    const device::Current current(port_.gpu());
    for (std::size_t i = 0; i < queues; ++i) {
      const device::CopyQueue& queue = port_.queue(i);
      if ((i == load_queue) == posted || queue.idle() || queue.has_ended()) continue;
      return fmt::format("{}, which has not finished a copy or a kernel of the call", name());
    }
  } catch (const std::exception&) {  // the GPU has failed: the next look at it says so
  }
  return {};
}

}  // namespace rondo::gpu
