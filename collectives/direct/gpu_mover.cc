// SPDX-License-Identifier: Apache-2.0
#include "collectives/direct/gpu_mover.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include <rondo/error.h>

#include "base/log.h"
#include "collectives/direct/area.h"
#include "collectives/kernels/device/image.h"
#include "device/keep.h"
#include "device/phases.h"

namespace rondo::direct {

namespace {

constexpr int multiprocessors = 16;  // CUdevice_attribute

device::Address address_of(const std::byte* memory) noexcept {
  return reinterpret_cast<device::Address>(memory);
}

}  // namespace

GpuMover::GpuMover(const device::Gpu& gpu, transports::GpuWindows& windows, const Size& size,
                   bool urgent, std::shared_ptr<operation::Waker> waker)
    : size_(size),
      windows_(windows),
      port_(gpu, {.bytes = pinned_bytes(size), .queues = queues}, urgent, std::move(waker)),
      slots_(gpu, windows, size.gpu_slot_bytes) {
  static_assert(most_value_bytes == most_eager_bytes);
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

void GpuMover::load_kernels(const void* image) {
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

void GpuMover::abandon() noexcept {
  port_.abandon();
  slots_.abandon();
  device::keep_until_exit(std::move(module_));
}

bool GpuMover::has_reached(operation::GpuMark& mark) {
  if (mark.reached) return true;
  const device::Current current(port_.gpu());
  if (!port_.reached(mark)) return false;
  port_.give_back(mark);
  return true;
}

// Values.

bool GpuMover::load_value(const std::byte* from, std::span<const Piece> pieces) {
  if (value_ == Value::loaded) return true;
  const device::Current current(port_.gpu());
  device::CopyQueue& loads = port_.queue(load_queue);
  if (value_ == Value::none) {
    for (const Piece& piece : pieces)
      loads.to_host(port_.memory() + piece.in_value, address_of(from + piece.in_buffer),
                    piece.bytes);
    loads.end_batch();
    value_ = Value::loading;
  }
  if (!loads.take_ended()) return false;
  value_ = Value::loaded;
  return true;
}

void GpuMover::store_result(std::byte* to, std::span<const Piece> pieces) {
  if (pieces.empty()) return;
  const device::Current current(port_.gpu());
  device::CopyQueue& stores = port_.queue(store_queue);
  for (const Piece& piece : pieces)
    stores.to_device(address_of(to + piece.in_buffer), result() + piece.in_value, piece.bytes);
  stores.end_batch();
  storing_ = true;
}

bool GpuMover::result_landed() {
  if (!storing_) return true;
  const device::Current current(port_.gpu());
  if (!port_.queue(store_queue).take_ended()) return false;
  storing_ = false;
  return true;
}

// Steps.

std::byte* GpuMover::carrier(Counter kind, std::uint64_t chunk) noexcept {
  return port_.memory() + most_value_bytes * (1 + size_.ranks) +
         (index(kind) * depth + chunk % depth) * size_.slot_bytes;
}

void GpuMover::to_host(Counter kind, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  const device::Current current(port_.gpu());
  queue(kind).to_host(to, address_of(from), bytes);
}

void GpuMover::to_device(Counter kind, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0) return;
  const device::Current current(port_.gpu());
  queue(kind).to_device(address_of(to), from, bytes);
}

void GpuMover::on_device(Counter kind, std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes == 0 || to == from) return;
  const device::Current current(port_.gpu());
  queue(kind).on_device(address_of(to), address_of(from), bytes);
}

void GpuMover::reduce(const kernels::DeviceReduction& reduction,
                      std::span<const std::byte* const> sources,
                      std::span<const double> input_scales, std::span<std::byte* const> outs,
                      std::size_t count) {
  const device::Current current(port_.gpu());
  kernels::ReduceArguments arguments =
      kernels::reduce_arguments(reduction, sources, input_scales, outs, count);
  void* parameters[] = {&arguments};
  const kernels::DeviceGrid grid = kernels::grid_of(count * size_of(reduction.type), most_blocks_);
  queue(Counter::combined)
      .launch(functions_[static_cast<std::size_t>(reduction.type)],
              kernels::reduce_kernel(reduction.type), grid.blocks, grid.threads, parameters);
}

void GpuMover::end_step(Counter kind) {
  const device::Current current(port_.gpu());
  queue(kind).end_batch();
  ++started_[index(kind)];
}

bool GpuMover::landed(Counter kind, std::uint64_t chunk) {
  if (landed_[index(kind)] > chunk) return true;
  const device::Current current(port_.gpu());
  if (!queue(kind).take_ended()) return false;
  ++landed_[index(kind)];
  return true;
}

// A value that is loaded while an operation is posted is that of a later one.
std::string GpuMover::awaited(bool posted) const {
  try {
    const device::Current current(port_.gpu());
    for (std::size_t i = 0; i < queues; ++i) {
      const device::CopyQueue& queue = port_.queue(i);
      if ((i == load_queue) == posted || queue.idle() || queue.has_ended()) continue;
      return fmt::format("GPU {}, which has not finished a copy or a kernel of the call",
                         port_.gpu().ordinal());
    }
  } catch (const std::exception&) {  // the GPU has failed: the next look at it says so
  }
  return {};
}

// A copy that lands after the last look and before the function is enqueued would wake nobody, so
// this looks again.
bool GpuMover::prepare_sleep(operation::GpuMark* awaited) {
  const device::Current current(port_.gpu());
  if (awaited != nullptr) port_.watch(*awaited);
  for (std::size_t i = 0; i < queues; ++i) port_.watch(port_.queue(i));
  bool news = awaited != nullptr && port_.has_news(*awaited);
  for (std::size_t i = 0; i < queues; ++i) news = news || port_.queue(i).has_ended();
  return !news;
}

}  // namespace rondo::direct
