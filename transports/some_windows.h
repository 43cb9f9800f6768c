// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transports/transport.h"

namespace rondo::transports {

// The windows of a transport for some of their ranks. Threads and failures: as in Windows.
class SomeWindows final : public Windows {
 public:
  // all: outlives the object. ranks: some of all.ranks(), ascending, this rank among them.
  SomeWindows(Windows& all, std::span<const int> ranks)
      : Windows({ranks.begin(), ranks.end()}), all_(all) {}

  Windows& all() const noexcept { return all_; }
  std::byte* area(int rank) const noexcept override {
    return std::ranges::binary_search(ranks(), rank) ? all_.area(rank) : nullptr;
  }
  WindowPlace find(const void* data, std::size_t bytes) noexcept override {
    return all_.find(data, bytes);
  }
  void ended(WindowPlace place) noexcept override { all_.ended(place); }
  std::byte* map(int rank, WindowPlace place, std::size_t bytes) override {
    return all_.map(rank, place, bytes);
  }
  void await(std::uint64_t ranks) noexcept override { all_.await(ranks); }
  void notify() noexcept override { all_.notify(); }

 private:
  Windows& all_;
};

}  // namespace rondo::transports
