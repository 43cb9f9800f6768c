// SPDX-License-Identifier: Apache-2.0
//
// Calls of every kind, drawn alike on every rank, each with contents that can be checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <rondo/communicator.h>

#include "support/draw.h"

namespace rondo::testing {

// A call under way.
class Pending {
 public:
  virtual ~Pending() = default;
  // Waits and throws std::runtime_error when the result is wrong.
  virtual void finish() = 0;
};

// At most a MiB in a buffer; collectives, messages one by one and in batches, all_to_all_v, and
// sums in allocated memory. `own` is drawn by each rank for itself: what need not be alike.
std::unique_ptr<Pending> start_some(Communicator& communicator, Draw& draw, Draw& own);

}  // namespace rondo::testing
