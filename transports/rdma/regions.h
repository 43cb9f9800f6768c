// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/own_descriptors.h"
#include "transports/rdma/devices.h"
#include "transports/rdma/rdma.h"
#include "transports/transport.h"

namespace rondo::rdma {

// The keys of registered memory, one for each device.
struct Keys {
  std::array<std::uint32_t, most_devices> local{}, remote{};
};

// Memory that is registered with every device, for as long as the object lives. The destructor may
// run on any thread, and does nothing in a forked child.
class MemoryRegion {
 public:
  // access: IBV_ACCESS_*. Throws Error(system) with the remedy when a device refuses.
  MemoryRegion(std::shared_ptr<Devices> devices, std::span<std::byte> memory, int access);
  ~MemoryRegion();
  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;
  std::span<std::byte> memory() const noexcept { return memory_; }
  const Keys& keys() const noexcept { return keys_; }

 private:
  void release() noexcept;

  const std::shared_ptr<Devices> devices_;
  const std::span<std::byte> memory_;
  std::vector<ibv_mr*> parts_;
  Keys keys_;
  const unsigned generation_ = base::process_generation();
};

// "; this process may lock 8 MiB of memory ...", with the remedy; empty when there is no limit.
std::string describe_lock_limit();
// Returns what the system said when it refused to register `bytes` bytes, with the limit and the
// remedy.
std::string describe_refusal(int error, std::size_t bytes);

// The program's registered memory. Communicators that were split from one another share it.
// Thread-safe: one mutex.
class Regions {
 public:
  struct Entry {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
    Keys keys;
  };
  void add(const MemoryRegion& region);
  void remove(const MemoryRegion& region) noexcept;
  // Changes with every add() and remove().
  std::uint64_t version() const noexcept { return version_.load(std::memory_order_acquire); }
  // In the order of add(). Ranges may overlap.
  std::vector<Entry> list() const;

 private:
  mutable base::Mutex mutex_;
  std::vector<Entry> entries_ RONDO_GUARDED_BY(mutex_);
  std::atomic<std::uint64_t> version_{1};
};

// A driver's copy of the regions, so that a look-up takes no lock. Thread-bound.
class RegionCache {
 public:
  explicit RegionCache(const Regions& regions) noexcept : regions_(regions) {}
  // The keys of a region that holds all of these bytes, or null. Valid until the next call.
  const Keys* find(const void* data, std::size_t bytes);
  bool empty();

 private:
  void refresh();

  const Regions& regions_;
  std::uint64_t version_ = 0;
  std::vector<Regions::Entry> entries_;
};

}  // namespace rondo::rdma
