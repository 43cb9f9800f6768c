// SPDX-License-Identifier: Apache-2.0
//
// Moves the bytes of a lane of direct operations on one GPU, by copies and kernels that are started
// now and land later. Each kind of step has a queue of its own, so a chunk is copied in while
// another one is combined. Nothing that it enqueues waits for another rank.
//
// Threads and failures: as in collectives/operation/gpu_port.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <rondo/types.h>

#include "collectives/direct/gpu_slots.h"
#include "collectives/direct/protocol.h"
#include "collectives/kernels/device/launch.h"
#include "collectives/operation/gpu_port.h"
#include "collectives/operation/waker.h"
#include "device/objects.h"
#include "transports/gpu_windows.h"

namespace rondo::direct {

class GpuMover {
 public:
  // Steps of one kind that may be under way, each with room for a chunk that goes through the host.
  static constexpr std::size_t depth = 2;

  struct Size {
    std::size_t ranks = 1;
    std::size_t slot_bytes = 0;      // of a slot in the host's memory
    std::size_t gpu_slot_bytes = 0;  // of one in the GPU's
  };
  // windows: those of memory on GPUs. They outlive the object, as gpu does. Loads the kernels.
  GpuMover(const device::Gpu& gpu, transports::GpuWindows& windows, const Size& size, bool urgent,
           std::shared_ptr<operation::Waker> waker);

  operation::GpuPort& port() noexcept { return port_; }
  const operation::GpuPort& port() const noexcept { return port_; }
  transports::GpuWindows& windows() const noexcept { return windows_; }
  GpuSlots& slots() noexcept { return slots_; }
  const GpuSlots& slots() const noexcept { return slots_; }
  // A peer's memory as this GPU reaches it: see Windows::map().
  std::byte* map(int rank, transports::WindowPlace place, std::size_t bytes) {
    return windows_.map_for(port_.gpu(), rank, place, bytes);
  }
  // Whether it has kernels, so that it can combine where buffers lie.
  bool has_kernels() const noexcept { return most_blocks_ != 0; }
  // See GpuPort.
  void abandon() noexcept;
  // The operation uses windows, or buffers that may be registered, from now on; ended: no work for
  // it is under way on the GPU.
  void hold_windows() noexcept {
    if (!std::exchange(holds_windows_, true)) windows_.hold();
  }
  void release_windows() noexcept {
    if (std::exchange(holds_windows_, false)) windows_.release();
  }

  // The mark of the next operation has been reached. Gives it back then.
  bool has_reached(operation::GpuMark& mark);
  // Bytes of a value: where they lie in the buffer, and where in value() or result().
  struct Piece {
    std::size_t in_buffer = 0, in_value = 0, bytes = 0;
  };
  // Starts to load a value from the GPU, once for each operation, and says whether it has landed.
  // Then it is in value() until the next one is loaded. Requires pieces if it wants_value(): they
  // are looked at only then.
  bool wants_value() const noexcept { return value_ == Value::none; }
  bool load_value(const std::byte* from, std::span<const Piece> pieces);
  const std::byte* value() const noexcept { return port_.memory(); }
  // The result of an operation with a value is made in result(), and stored from there.
  std::byte* result() noexcept { return port_.memory() + most_value_bytes; }
  void store_result(std::byte* to, std::span<const Piece> pieces);
  bool result_landed();

  // The operation is posted: the next value may be loaded, or its steps are counted from here.
  void begin(bool has_value) noexcept {
    if (has_value)
      value_ = Value::none;
    else
      started_ = landed_ = {};
  }
  // A step of one kind is what is enqueued between two calls of end_step().
  bool may_start(Counter kind) const noexcept {
    return started_[index(kind)] - landed_[index(kind)] < depth;
  }
  // Host memory for the step of this chunk, until it has landed.
  std::byte* carrier(Counter kind, std::uint64_t chunk) noexcept;
  void to_host(Counter kind, std::byte* to, const std::byte* from, std::size_t bytes);
  void to_device(Counter kind, std::byte* to, const std::byte* from, std::size_t bytes);
  void on_device(Counter kind, std::byte* to, const std::byte* from, std::size_t bytes);
  // Combines sources in rank order, and stores the result to all outs. Requires has_kernels().
  void reduce(const kernels::DeviceReduction& reduction, std::span<const std::byte* const> sources,
              std::span<const double> input_scales, std::span<std::byte* const> outs,
              std::size_t count);
  void end_step(Counter kind);
  bool landed(Counter kind, std::uint64_t chunk);

  // "GPU 1, which has not finished ...", if it has started something for the first operation and
  // not finished it; else empty. posted: that operation is; else its value may be under way.
  std::string awaited(bool posted) const;
  // The driver is about to sleep: the GPU wakes it when something lands. False: something has.
  bool prepare_sleep(operation::GpuMark* awaited);

 private:
  static constexpr std::size_t most_value_bytes = std::size_t{16} << 10;
  static constexpr std::size_t load_queue = counter_kinds, store_queue = counter_kinds + 1,
                               queues = counter_kinds + 2;

  static constexpr std::size_t index(Counter kind) noexcept {
    return static_cast<std::size_t>(kind);
  }
  static std::size_t pinned_bytes(const Size& size) noexcept {
    return most_value_bytes * (1 + size.ranks) + counter_kinds * depth * size.slot_bytes;
  }
  device::CopyQueue& queue(Counter kind) noexcept { return port_.queue(index(kind)); }

  void load_kernels(const void* image);

  enum class Value { none, loading, loaded };

  const Size size_;
  transports::GpuWindows& windows_;
  operation::GpuPort port_;
  GpuSlots slots_;
  std::unique_ptr<device::Module> module_;
  std::array<device::FunctionHandle, dtype_count> functions_{};
  unsigned most_blocks_ = 0;  // of a launch; 0: there are no kernels
  std::array<std::uint64_t, counter_kinds> started_{}, landed_{};
  Value value_ = Value::none;
  bool storing_ = false, holds_windows_ = false;
};

}  // namespace rondo::direct
