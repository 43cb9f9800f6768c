// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "tools/late/clocks.h"
#include "tools/measure/conditions.h"
#include "tools/measure/row.h"

namespace rondo::tools {

// One iteration on one rank.
struct Timed {
  double us = 0;  // of one call; 0: this rank does not time the iteration
  std::chrono::steady_clock::time_point called, ended;
};

// Sorts the times. There is at least one.
Times summarize(std::vector<double> times);

// Called before each timed iteration: (iteration from 0 on, number of iterations).
using IterationHook = std::function<void(std::uint64_t, std::uint64_t)>;

// Runs the iterations of rows: the warmups, then the timed ones. All ranks make the same calls and
// get the same results.
class Iterations {
 public:
  // Shared by all rows of a rank. They outlive the object.
  struct Context {
    const Conditions& conditions;
    Stop& stop;
    Clocks& clocks;
  };

  Iterations(Communicator& communicator, const Context& context, IterationHook hook);

  // Measures what a Row says of its iterations: their times, how many elements were wrong, and
  // whether the user ended the run before the last. Asks about 20 times a second whether one rank
  // has to stop; then all do, after the same iteration.
  // iterate: runs one iteration. check: returns how many elements of the last iteration are wrong
  // on this rank; it is not timed. together: all ranks call at once, so one can be late.
  // row.iterations: how many to time, without warmups; 0: as the conditions say.
  void measure(Row& row, bool together, const std::function<Timed()>& iterate,
               const std::function<std::uint64_t()>& check) const;

 private:
  std::uint64_t choose_count(const std::function<Timed()>& iterate,
                             const std::function<std::uint64_t()>& check) const;

  Communicator& communicator_;
  const Context context_;
  IterationHook hook_;
};

}  // namespace rondo::tools
