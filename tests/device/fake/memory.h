// SPDX-License-Identifier: Apache-2.0
//
// All memory that the fake knows: of GPUs, and pinned memory of the host. Thread-safe. Callers are
// quiet, unless a function says that TSan sees it.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

#include "contexts.h"
#include "device/driver.h"

namespace fake {

using rondo::device::Address;
using rondo::device::Ordinal;

// Memory of a GPU: a memfd. Its descriptor is the memory's owner, so it lives until the last
// process lets go.
class Storage {
 public:
  // Throws std::bad_alloc where the system refuses.
  Storage(int machine_gpu, std::size_t bytes);
  // Takes over a descriptor of another process's Storage. Throws std::invalid_argument if it is
  // none.
  explicit Storage(int descriptor);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  int descriptor() const { return descriptor_; }
  std::size_t bytes() const { return bytes_; }
  int machine_gpu() const { return machine_gpu_; }
  unsigned long inode() const { return inode_; }
  // Says, to every process, that this process has opened memory of another one. Until the object is
  // destroyed, or the process ends.
  void mark_opened();
  // Whether another process has opened it.
  bool is_opened() const;

 private:
  int descriptor_ = -1, machine_gpu_ = 0;
  std::size_t bytes_ = 0;
  unsigned long inode_ = 0;
};

enum class Origin { allocated, opened, mapped, host_allocated, host_registered };

// A range of addresses. They are those of the host for pinned memory. Other addresses have no
// access rights, and the bytes are mapped at `bytes_at`.
struct Region {
  Origin origin = Origin::allocated;
  Address base = 0;
  std::size_t bytes = 0;
  std::byte* bytes_at = nullptr;
  ContextHandle context = nullptr;  // null for mapped
  int ordinal = 0;
  std::shared_ptr<Storage> storage;                // null for pinned memory
  Address reservation = 0, reservation_bytes = 0;  // of mapped
  bool accessible = true;                          // mapped: after cuMemSetAccess
  int handle_types = 0;
  unsigned opened = 1;  // how often an IPC handle has been opened

  bool on_host() const {
    return origin == Origin::host_allocated || origin == Origin::host_registered;
  }
};

class Memory {
 public:
  // Adds memory of a GPU at new addresses. Throws std::bad_alloc.
  Region add(Origin origin, ContextHandle context, std::shared_ptr<Storage> storage);
  // Adds memory of a GPU at addresses that are reserved.
  void map(const Region& at, std::size_t offset);
  // Adds pinned memory. False if some of it is pinned already.
  bool pin(Origin origin, ContextHandle context, void* data, std::size_t bytes);
  // Takes a region out, which must begin there. False where there is none of that origin.
  bool remove(Address base, Origin origin, Region* removed = nullptr);

  // The region that holds the address. False where there is none.
  bool find(Address address, Region* found);
  // Whether work may use the range: it lies in one region, or in accessible mapped ones that
  // adjoin.
  bool covers(Address address, std::size_t bytes);
  // Whether all of the range is pinned memory.
  bool is_pinned(const void* data, std::size_t bytes);
  // How a message names what is there.
  std::string describe(Address address);
  // Calls each(region) for all regions; each changes what it likes.
  template <class Each>
  void for_each(Each each) {
    const std::lock_guard lock(mutex_);
    for (auto& [end, region] : regions_) each(region);
  }

  // Copies up to most bytes; TSan sees the copy. Returns how many. Neither end goes away meanwhile.
  // 0: there is no such memory.
  std::size_t copy(Address to, Address from, std::size_t most);
  std::size_t fill(Address to, unsigned char value, std::size_t most);
  // Where the host reaches the bytes; null unless all are in one region.
  void* storage_of(Address address, std::size_t bytes);

 private:
  Region* at(Address address);
  std::byte* reach(Address address, std::size_t* most);

  std::mutex mutex_;
  std::map<Address, Region> regions_;  // by their last address
};
Memory& memory();

// Reserves addresses without access rights, and gives them back. Throws std::bad_alloc.
Address reserve_addresses(std::size_t bytes, std::size_t alignment);
void free_addresses(Address base, std::size_t bytes);

// Counts memory against what the GPU has. False if that is too little.
bool take_from_gpu(int machine_gpu, std::size_t bytes);
void give_to_gpu(int machine_gpu, std::size_t bytes);

}  // namespace fake
