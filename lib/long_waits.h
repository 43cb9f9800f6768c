// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/control/culprits.h"

namespace rondo::lib {

// Rank 0's warnings on standard error about operations that wait for long, in the words that their
// deadline would use.
class LongWaits {
 public:
  // Writes once for each operation, whichever rank asks and in whichever lane it waits: one line
  // names all that wait.
  void tell(const control::DeadlineMessage& slow, int reporter,
            const std::vector<control::Standing>& standings);

 private:
  std::uint64_t told_[lane_count] = {};  // the newest
  std::string last_;                     // for messages, which have no number in common
};

}  // namespace rondo::lib
