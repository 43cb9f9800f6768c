// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/engine/failure.h"
#include "lib/control/messages.h"

namespace rondo::control {

// What rank 0 knows of a rank when it looks for the cause of a missed deadline.
struct Standing {
  enum class State { answered, silent, left };
  State state = State::silent;
  bool known = false;  // status: of now when it answered, else of an earlier time
  engine::RankStatus status;
};

// Ranks that have called different things as the same operation: a mismatch that names two of them.
std::optional<engine::Failure> find_disagreement(const DeadlineMessage& deadline,
                                                 const std::vector<Standing>& standings);

// The same for the oldest operation of this lane that any rank is in.
std::optional<engine::Failure> find_oldest_disagreement(Priority lane,
                                                        const std::vector<Standing>& standings);

// A disagreement, if there is one. Else names the ranks that kept the operation from its end: ranks
// that do not answer, ranks that have left, ranks that wait for each other across lanes, ranks that
// have not called it, ranks for which others wait; else what the reporting rank itself thinks.
engine::Failure find_culprits(const DeadlineMessage& deadline, int reporter,
                              const std::vector<Standing>& standings);

}  // namespace rondo::control
