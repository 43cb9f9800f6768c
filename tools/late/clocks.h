// SPDX-License-Identifier: Apache-2.0
//
// How the clocks of hosts differ, so that times of several hosts can be compared.
#pragma once

#include <rondo/communicator.h>

#include <chrono>
#include <vector>

namespace rondo::tools {

// The steady clocks of all ranks, compared with that of rank 0. Ranks of one host share a clock if
// they share kernel and time namespace: containers may have clocks of their own. For every other
// clock rank 0 exchanges short messages with the first rank that has it. In the shortest round trip
// the other clock was read in the middle, give or take half of the round trip. Between two such
// readings a clock is taken to drift evenly.
class Clocks {
 public:
  // All ranks make the object and call mark() together. A failure of the communicator throws.
  explicit Clocks(Communicator& communicator);
  // Compares the clocks now.
  void mark();

  // The rest is known on rank 0 alone, after two marks. What rank 0's clock showed, in nanoseconds,
  // when that of `rank` showed `nanoseconds`.
  double on_rank_0(int rank, double nanoseconds) const;
  // Two converted times of different ranks are off by at most this.
  double error_ns() const;

 private:
  struct Mark {
    double at = 0;      // by the other clock, nanoseconds
    double offset = 0;  // how far it was ahead of rank 0's
    double error = 0;
  };
  struct Other {
    int first = 0;  // its first rank
    Mark before, now;
  };
  int place_of(int first);
  Mark ask(int rank);
  void answer();

  Communicator& communicator_;
  std::vector<Other> others_;  // rank 0: all but its own; other ranks: empty
  std::vector<int> clock_of_;  // by rank, the place in others_; -1: the clock of rank 0
  bool answers_ = false;       // whether this is the first rank of a clock other than rank 0's
};

// Now, by the steady clock of this host in nanoseconds.
inline double steady_ns() {
  return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                 std::chrono::steady_clock::now().time_since_epoch())
                                 .count());
}

}  // namespace rondo::tools
