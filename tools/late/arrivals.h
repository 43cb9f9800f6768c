// SPDX-License-Identifier: Apache-2.0
//
// When each rank called, and what that says of who is late.
#pragma once

#include <rondo/communicator.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "tools/late/clocks.h"
#include "tools/shared/lists.h"

namespace rondo::tools {

// The rank that came last to the calls of a row, by clocks set against that of rank 0.
struct Lateness {
  int rank = -1;           // the rank that was last most often
  double share = 0;        // of the iterations in which it was last, 0 to 1
  double late_us = 0;      // in these: how long after the median of the other ranks it came; median
  double transfer_us = 0;  // from the last rank's call to the end of the slowest rank; median
  double clock_error_us = 0;       // bound of what the clocks of two ranks may differ
  std::vector<double> last_share;  // by rank: the share of iterations in which it was last
  std::vector<double> behind_us;   // by rank: how long after the median of the others; median
};

// When one rank called and returned, in nanoseconds of one clock.
struct Stamp {
  double called = 0, ended = 0;
};

// Judges iterations of several ranks: stamps[rank * iterations + iteration], all by one clock. An
// iteration's last rank is the one that called last. It is late by its distance from the median of
// the other ranks' calls. Needs at least two ranks and one iteration.
Lateness judge(std::span<const Stamp> stamps, std::size_t ranks);

// The stamps of this rank in the iterations of a row. Their number is bounded: of more iterations
// every second, fourth, ... is kept, and the same ones on all ranks.
class Arrivals {
 public:
  explicit Arrivals(int ranks);
  void add(std::chrono::steady_clock::time_point called,
           std::chrono::steady_clock::time_point ended);
  // Brings the stamps of all ranks to rank 0, which judges them. All ranks call it together, after
  // as many add(). No value on the other ranks, without iterations, and with one rank.
  std::optional<Lateness> judge(Communicator& communicator, const Clocks& clocks) const;

 private:
  Samples<Stamp> stamps_;
};

}  // namespace rondo::tools
