// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/clock.h"
#include "device/gpu.h"
#include "transports/transport.h"

namespace rondo::transports {

// Windows whose find() and map() are about memory of GPUs: pointers are addresses of the GPU. They
// stand on the windows of a transport, which have the areas.
class GpuWindows : public Windows {
 public:
  using Windows::Windows;
  // Zeroed memory of the GPU with this ordinal, which the others can map. It may outlive the
  // windows. Throws Error. Thread-safe. May block in CUDA, as catch_up() may: neither runs under
  // the engine's lock.
  virtual std::unique_ptr<Allocation> allocate(int ordinal, std::size_t bytes) = 0;
  // Lets the others map memory of this GPU that the program has allocated. The end of what it
  // returns waits, for a bounded time, until no operation uses the memory here and the others have
  // let go of it. It may outlive the windows. Throws Error: unsupported if other processes cannot
  // reach such memory; system. Thread-safe. May block in CUDA.
  virtual std::unique_ptr<Registration> register_memory(int ordinal,
                                                        std::span<std::byte> memory) = 0;
  // Exports what find() was asked for, maps for this GPU what peers have exported since, and lets
  // go of what they have freed. To be called before an operation on the GPU. Thread-safe.
  virtual void catch_up(const device::Gpu& gpu) = 0;
  // Whether each GPU that catch_up() was called for reaches all that is mapped. If not, this rank
  // must use no windows from now on. Thread-safe.
  virtual bool reaches_all() const noexcept = 0;
  // map() for this GPU: registered memory of another process has an address of its own for each.
  virtual std::byte* map_for(const device::Gpu& gpu, int rank, WindowPlace place,
                             std::size_t bytes) = 0;
  // An operation uses memory of others, or what is registered here, from now on, until release()
  // has been called as often. After a failure release() follows when its work on the GPU has ended;
  // if that does not end, never.
  // Thread-bound: the driver of the transport.
  virtual void hold() noexcept = 0;
  virtual void release() noexcept = 0;
  // The windows below are used no longer, nor is any other function called. Waits until others have
  // let go of what this rank has registered, but not beyond `until`. idle: no work of a GPU uses
  // memory of others any more. Otherwise that stays mapped.
  virtual void close(bool idle, base::TimePoint until) noexcept = 0;
};

}  // namespace rondo::transports
