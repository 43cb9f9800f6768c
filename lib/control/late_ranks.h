// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/operation/failure.h"
#include "lib/wire/messages.h"

namespace rondo::control {

// A rank as rank 0 sees it when it looks for the cause of a missed deadline.
struct Standing {
  enum class State { answered, silent, left };
  State state = State::silent;
  bool known = false;  // status is known: the present one if it answered, else an earlier one
  operation::RankStatus status;
};

// Looks for ranks that have called different things as the same operation. Returns a mismatch that
// names two of them. Thread-safe, like all functions here.
std::optional<operation::Failure> find_disagreement(const wire::DeadlineMessage& deadline,
                                                    const std::vector<Standing>& standings);

// Does so for the oldest operation of this lane that any rank is in.
std::optional<operation::Failure> find_oldest_disagreement(Priority lane,
                                                           const std::vector<Standing>& standings);

// Returns a disagreement, if there is one. Else names the ranks that kept the operation from its
// end, the first of these that there are:
//     ranks that do not answer (stopped, unreachable, or behind a full link),
//     ranks that have left,
//     ranks that wait for each other across lanes,
//     ranks that have not called the operation, with the last one they finished,
//     ranks that others wait for.
// Else returns what the reporting rank itself thinks. Failure::culprits are the ranks that the text
// blames; when ranks wait for each other, those of the smallest group.
operation::Failure find_late_ranks(const wire::DeadlineMessage& deadline, int reporter,
                                   const std::vector<Standing>& standings);

// Writes rank 0's warnings about operations that wait for long, in the words of a missed deadline.
// They go to the log, which is standard error. Thread-bound to the control thread.
class LongWaits {
 public:
  // Writes once for each operation, whichever rank asks and in whichever lane it waits: one line
  // names all operations that wait.
  void tell(const wire::DeadlineMessage& slow, int reporter,
            const std::vector<Standing>& standings);

 private:
  std::uint64_t told_[lane_count] = {};  // the newest operation that was written about, by lane
  std::string last_;  // the last line: messages between two ranks have no common number
};

}  // namespace rondo::control
