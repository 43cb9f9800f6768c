// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace rondo::tools {

// Who came last to the calls of a row, by clocks set against that of rank 0.
struct Lateness {
  int rank = -1;           // the rank that was last most often
  double share = 0;        // of the iterations in which it was last, 0 to 1
  double late_us = 0;      // in these: how long after the median of the other ranks it came; median
  double transfer_us = 0;  // from the last rank's call to the end of the slowest rank; median
  double clock_error_us = 0;       // bound of what the clocks of two ranks may differ
  std::vector<double> last_share;  // by rank: the share of iterations in which it was last
  std::vector<double> behind_us;   // by rank: how long after the median of the others; median
};

}  // namespace rondo::tools
