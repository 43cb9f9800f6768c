// SPDX-License-Identifier: Apache-2.0
//
// Memory of the ranks of a fabric, which are threads of one process: what one allocates, the others
// reach by its address.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <vector>

#include "transports/host/passing.h"
#include "transports/mem/ring.h"
#include "transports/transport.h"

namespace rondo::mem {

// Pages of zeros from the system.
class ZeroPages {
 public:
  explicit ZeroPages(std::size_t bytes);  // Throws Error(system).
  ~ZeroPages();
  ZeroPages(const ZeroPages&) = delete;
  ZeroPages& operator=(const ZeroPages&) = delete;
  std::span<std::byte> bytes() const noexcept { return bytes_; }
  void discard() noexcept;  // the memory goes, the addresses stay

 private:
  std::span<std::byte> bytes_;
};

// Holds, for the whole fabric, the areas and what has been allocated and not yet freed. Reentrant.
class MemWindowTable {
 public:
  explicit MemWindowTable(int size);
  std::byte* area(int rank) noexcept {
    return areas_[static_cast<std::size_t>(rank)]->bytes().data();
  }
  static std::unique_ptr<transports::Allocation> allocate(std::shared_ptr<MemWindowTable> table,
                                                          int rank, std::size_t bytes);
  // Whether all of it lies in one allocation of the rank.
  bool holds(int rank, const std::byte* data, std::size_t bytes);

 private:
  class Owned;

  std::mutex mutex_;
  std::vector<std::unique_ptr<ZeroPages>> areas_;
  std::vector<std::map<const std::byte*, std::size_t>> live_;  // by rank
  std::vector<std::unique_ptr<ZeroPages>> freed_;
};

// The table as one rank sees it. A place is an address.
class MemWindows final : public transports::Windows, public host::DescriptorPassing {
 public:
  MemWindows(std::shared_ptr<MemWindowTable> table, int rank, std::vector<MemBell>& bells)
      : Windows(all_ranks(bells.size())), table_(std::move(table)), rank_(rank), bells_(bells) {}
  std::byte* area(int rank) const noexcept override { return table_->area(rank); }
  transports::WindowPlace find(const void* data, std::size_t bytes) noexcept override;
  std::byte* map(int rank, transports::WindowPlace place, std::size_t bytes) override;
  void notify() noexcept override;
  // Nobody passes descriptors: the sink only learns of halt().
  void set_sink(host::DescriptorSink* sink) noexcept override { sink_ = sink; }
  void halt() noexcept {
    if (sink_ != nullptr) sink_->halted();
  }

 private:
  static std::vector<int> all_ranks(std::size_t count) {
    std::vector<int> ranks(count);
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }

  std::shared_ptr<MemWindowTable> table_;
  host::DescriptorSink* sink_ = nullptr;
  int rank_;
  std::vector<MemBell>& bells_;
};

}  // namespace rondo::mem
