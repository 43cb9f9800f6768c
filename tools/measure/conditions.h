// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "tools/measure/operation.h"

namespace rondo::tools {

// How rows are measured; the same for all rows of a run and on all ranks, but for the delay.
struct Conditions {
  std::uint64_t largest = 0;     // bytes of the largest row
  std::uint64_t iterations = 0;  // of a row; 0: as many as fit into row_time
  std::chrono::nanoseconds row_time = std::chrono::seconds(1);
  std::uint64_t fewest = 10, most = 200;  // iterations, where row_time decides
  std::uint64_t warmups = 2;
  std::uint64_t in_a_row = 1;  // calls of one iteration, started before the first is waited for
  std::uint64_t window = 64;   // messages of one iteration, likewise
  bool check = true;           // every result of a timed iteration
  bool fresh = false;          // inputs are written before every iteration, not only with a check
  bool allocate = false;       // buffers from Communicator::allocate
  bool keep_times = false;     // Row::times_us is wanted
  std::chrono::nanoseconds delay{};  // before every call of this rank (--delay)

  // With a check inputs always are written before every iteration.
  bool writes_anew() const noexcept { return check || fresh; }
  std::uint64_t calls_of(const Operation& operation) const noexcept {
    return operation.windowed() ? window : operation.between_pairs() ? 1 : in_a_row;
  }
};

// Whether the user wants the run to end. Ranks find out together: see Iterations. Thread-safe.
class Stop {
 public:
  void ask() noexcept { asked_ = true; }
  bool asked() const noexcept { return asked_; }
  // All ranks have agreed to stop: what is left is to sum up.
  void agree() noexcept { agreed_ = true; }
  bool agreed() const noexcept { return agreed_; }

 private:
  std::atomic<bool> asked_ = false;
  std::atomic<bool> agreed_ = false;
};

}  // namespace rondo::tools
