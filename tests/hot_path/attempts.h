// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <limits>

#include "hot_path/counting.h"

namespace rondo::testing {

// Counts what ranks that are threads of this program allocate while all of them repeat something.
// A rank that stands still for half a second makes the others ask why, which allocates: a busy
// machine may need more than one attempt.
class Attempts {
 public:
  explicit Attempts(int ranks) : begin_(ranks), end_(ranks) {}

  // Every rank calls this. Ends after the first attempt in which nothing was allocated, or the
  // third.
  template <class Function>
  void run(int rank, int repeats, const Function& function) {
    for (int attempt = 0; attempt < 3 && least_ != 0; ++attempt) {
      begin_.arrive_and_wait();
      if (rank == 0) before_ = allocations();
      begin_.arrive_and_wait();
      for (int i = 0; i < repeats; ++i) function();
      end_.arrive_and_wait();
      if (rank == 0) least_ = std::min(least_, allocations() - before_);
      end_.arrive_and_wait();
    }
  }
  // Allocations in the attempt with the fewest. When all ranks have ended.
  std::uint64_t least() const noexcept { return least_; }

 private:
  std::barrier<> begin_, end_;
  std::uint64_t before_ = 0, least_ = std::numeric_limits<std::uint64_t>::max();
};

}  // namespace rondo::testing
