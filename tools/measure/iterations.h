// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>

#include <cstdint>
#include <functional>

#include "tools/bench/options.h"

namespace rondo::tools {

// Times of the iterations of a row. That of an iteration is the time of its slowest rank.
struct Times {
  double mean_us = 0, min_us = 0, p50_us = 0, p99_us = 0;
};

// Called before each timed iteration: (iteration from 0 on, number of iterations).
using IterationHook = std::function<void(std::uint64_t, std::uint64_t)>;

// Runs the iterations of rows: the warmups, then the timed ones. All ranks make the same calls and
// get the same results.
class Iterations {
 public:
  struct Result {
    Times times;
    std::uint64_t wrong = 0;  // elements, over all ranks and timed iterations
  };

  Iterations(Communicator& communicator, const BenchOptions& options, IterationHook hook);

  // iterate: runs one iteration and returns its microseconds on this rank.
  // check: returns how many elements of the last iteration are wrong on this rank. It is not timed.
  Result measure(const std::function<double()>& iterate,
                 const std::function<std::uint64_t()>& check) const;

 private:
  std::uint64_t choose_count(const std::function<double()>& iterate,
                             const std::function<std::uint64_t()>& check) const;

  Communicator& communicator_;
  const BenchOptions& options_;
  IterationHook hook_;
};

}  // namespace rondo::tools
