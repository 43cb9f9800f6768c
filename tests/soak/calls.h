// SPDX-License-Identifier: Apache-2.0
//
// Random calls of every kind, the same on every rank, with contents that can be checked.
#pragma once

#include <memory>

#include <rondo/communicator.h>

#include "support/draw.h"

namespace rondo::testing {

// A call in flight.
class Pending {
 public:
  virtual ~Pending() = default;
  // Waits and throws std::runtime_error when the result is wrong.
  virtual void finish() = 0;
};

// Starts a random call: a collective, messages one by one or in a batch, messages that a rank
// receives from any rank, an all_to_all_v, a sum in allocated memory, or sums with input scales
// that wait for each other's memory. A buffer has about a MiB at most. `draw` must be the same on
// all ranks. Each rank has its own `own`, for choices that may differ.
std::unique_ptr<Pending> start_some(Communicator& communicator, Draw& draw, Draw& own);

}  // namespace rondo::testing
