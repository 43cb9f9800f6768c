// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/control/culprits.h"

namespace rondo::lib {

// Writes rank 0's warnings about operations that wait for long, in the words of a missed deadline.
// They go to the log, which is standard error. Thread-bound to the control thread.
class LongWaits {
 public:
  // Writes once for each operation, whichever rank asks and in whichever lane it waits: one line
  // names all operations that wait.
  void tell(const control::DeadlineMessage& slow, int reporter,
            const std::vector<control::Standing>& standings);

 private:
  std::uint64_t told_[lane_count] = {};  // the newest operation that was written about, by lane
  std::string last_;  // the last line: messages between two ranks have no common number
};

}  // namespace rondo::lib
