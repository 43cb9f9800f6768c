// SPDX-License-Identifier: Apache-2.0
//
// Slots of a lane of direct operations in memory of one GPU. The other ranks map them, as they map
// memory of Communicator::allocate(), so buffers that are not in windows need not go through the
// host. Memory of a GPU is scarce, and the first calls on memory from allocate() go through the
// host too: so slots are made only after a few calls that wanted them. Until all ranks have made
// and mapped them, all ranks go through the host.
//
// Threads: make_wanted() is for the thread that starts operations of the lane, without the engine's
// lock, because CUDA may block there. abandon() and the destructor come after the engine's end. The
// rest is for whoever holds the engine's lock. A rank that cannot make slots goes on without.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>

#include <rondo/types.h>

#include "collectives/direct/area.h"
#include "collectives/kernels/device/arguments.h"
#include "device/gpu.h"
#include "transports/gpu_windows.h"

namespace rondo::gpu {

// The bytes of a slot, of which each rank's part has a cache line of its own. chunk_bytes: see
// DirectOptions::device_chunk_bytes. It is alike on all ranks, because posts compare it.
constexpr std::size_t gpu_slot_bytes(std::size_t chunk_bytes, Priority lane) noexcept {
  constexpr std::size_t line = 64;
  const std::size_t bytes = chunk_bytes / (lane == Priority::bulk ? 8 : 32);
  return std::max(bytes / line * line, kernels::ReduceArguments::most * line);
}

class GpuSlots {
 public:
  // gpu and windows outlive the object.
  GpuSlots(const device::Gpu& gpu, transports::GpuWindows& windows, std::size_t slot_bytes) noexcept
      : gpu_(gpu), windows_(windows), slot_bytes_(slot_bytes) {}

  // A call has gone through the host for want of slots.
  void want() noexcept { wanted_.fetch_add(1, std::memory_order_relaxed); }
  // Makes them if calls have wanted them, and says why if it cannot. Throws only bad_alloc.
  void make_wanted();
  // Where the others find them, if each of them has mapped them; otherwise nowhere.
  transports::WindowPlace place() const noexcept;

  // direct_slots of slot_bytes(), one after the other; null before they are made.
  std::byte* memory() const noexcept { return memory_.load(std::memory_order_acquire); }
  std::size_t slot_bytes() const noexcept { return slot_bytes_; }
  std::size_t bytes() const noexcept { return memory() == nullptr ? 0 : whole_bytes(); }
  // Belongs to this rank or another.
  std::size_t whole_bytes() const noexcept { return direct::direct_slots * slot_bytes_; }

  // Leaves them to the end of the process: a GPU may still use them.
  void abandon() noexcept;

 private:
  const device::Gpu& gpu_;
  transports::GpuWindows& windows_;
  const std::size_t slot_bytes_;
  std::atomic<unsigned> wanted_{0};
  bool tried_ = false;
  std::unique_ptr<transports::Allocation> allocation_;
  std::atomic<std::byte*> memory_{nullptr};
};

}  // namespace rondo::gpu
