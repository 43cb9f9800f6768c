// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transports/transport.h"

namespace rondo::transports {

// The windows of a transport for some of their ranks. What others pass goes to the sink too, so it
// looks at who has sent it. Threads and failures: as in Windows.
class SomeWindows final : public Windows {
 public:
  // all: outlives the object. ranks: some of all.ranks(), ascending, this rank among them.
  SomeWindows(Windows& all, std::span<const int> ranks)
      : all_(all), ranks_(ranks.begin(), ranks.end()) {}

  std::span<const int> ranks() const noexcept override { return ranks_; }
  std::byte* area(int rank) const noexcept override {
    return std::ranges::binary_search(ranks_, rank) ? all_.area(rank) : nullptr;
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
  int pass_descriptor(int rank, std::span<const std::byte> message, int descriptor) override {
    return all_.pass_descriptor(rank, message, descriptor);
  }
  bool has_died(int rank) const noexcept override { return all_.has_died(rank); }
  void set_sink(DescriptorSink* sink) noexcept override { all_.set_sink(sink); }

 private:
  Windows& all_;
  const std::vector<int> ranks_;
};

}  // namespace rondo::transports
