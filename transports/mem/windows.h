// SPDX-License-Identifier: Apache-2.0
//
// Memory of the ranks of a fabric, which are threads of one process: what one allocates, the others
// reach by its address.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/pages.h"
#include "transports/host/passing.h"
#include "transports/mem/link.h"
#include "transports/transport.h"

namespace rondo::mem {

// Holds, for the whole fabric, the areas and what has been allocated. Thread-safe.
class MemMemory {
 public:
  explicit MemMemory(int size) {
    for (int rank = 0; rank < size; ++rank) areas_.emplace_back(transports::window_area_bytes);
  }
  std::byte* area(int rank) const noexcept {
    return areas_[static_cast<std::size_t>(rank)].memory().data();
  }
  std::span<std::byte> add(int rank, std::size_t bytes) {
    auto part = std::make_unique<Part>(bytes, rank);
    const std::span<std::byte> memory = part->pages.memory();
    const std::lock_guard lock(mutex_);
    parts_.emplace(memory.data(), std::move(part));
    return memory;
  }
  // The addresses stay: another rank may still be at an operation that has failed here, and its
  // accesses must hit nothing else.
  void remove(const std::byte* data) noexcept {
    const std::lock_guard lock(mutex_);
    Part& part = *parts_.find(data)->second;
    part.is_live = false;
    part.pages.discard();
  }
  // Whether all of it lies in one allocation of the rank.
  bool holds(int rank, const std::byte* data, std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    const auto after = parts_.upper_bound(data);
    if (after == parts_.begin()) return false;
    const Part& part = *std::prev(after)->second;
    const auto offset = static_cast<std::size_t>(data - part.pages.memory().data());
    const std::size_t all = part.pages.memory().size();
    return part.is_live && part.rank == rank && offset <= all && bytes <= all - offset;
  }

 private:
  struct Part {
    Part(std::size_t bytes, int its_rank) : pages(bytes), rank(its_rank) {}
    const base::Pages pages;
    const int rank;
    bool is_live = true;
  };

  std::mutex mutex_;
  std::deque<base::Pages> areas_;
  std::map<const std::byte*, std::unique_ptr<Part>> parts_;  // by address
};

class MemAllocation final : public transports::Allocation {
 public:
  MemAllocation(std::shared_ptr<MemMemory> all, int rank, std::size_t bytes)
      : Allocation(all->add(rank, bytes)), all_(std::move(all)) {}
  ~MemAllocation() override { all_->remove(memory().data()); }

 private:
  std::shared_ptr<MemMemory> all_;
};

// The memory as one rank sees it. A place is an address. Nobody passes descriptors: the sink only
// learns of halt().
class MemWindows final : public transports::Windows, public host::DescriptorPassing {
 public:
  MemWindows(MemMemory& all, int rank, std::vector<MemBell>& bells)
      : Windows(ranks_to(bells.size())), all_(all), rank_(rank), bells_(bells) {}
  std::byte* area(int rank) const noexcept override { return all_.area(rank); }
  transports::WindowPlace find(const void* data, std::size_t bytes) noexcept override {
    if (!all_.holds(rank_, static_cast<const std::byte*>(data), bytes)) return {};
    return {0, 1, reinterpret_cast<std::uintptr_t>(data)};
  }
  std::byte* map(int rank, transports::WindowPlace place, std::size_t bytes) override {
    auto* const data = reinterpret_cast<std::byte*>(static_cast<std::uintptr_t>(place.offset));
    return place.generation == 1 && all_.holds(rank, data, bytes) ? data : nullptr;
  }
  void notify() noexcept override {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    for (std::size_t rank = 0; rank < bells_.size(); ++rank)
      if (static_cast<int>(rank) != rank_) bells_[rank].ring();
  }
  void set_sink(host::DescriptorSink* sink) noexcept override { sink_ = sink; }
  void halt() noexcept {
    if (sink_ != nullptr) sink_->halted();
  }

 private:
  static std::vector<int> ranks_to(std::size_t count) {
    std::vector<int> ranks(count);
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  MemMemory& all_;
  host::DescriptorSink* sink_ = nullptr;
  const int rank_;
  std::vector<MemBell>& bells_;
};

}  // namespace rondo::mem
