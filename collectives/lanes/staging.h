// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/operation/device_memory.h"
#include "collectives/operation/operation.h"

namespace rondo::lanes {

// Stages the operations of one lane whose buffers are in one device memory. Copies each segment to
// host memory before it opens, and its results back when its steps are done, while links and the
// CPU work on other segments (Run::staged). TwoLevelOwner may take over one direction or both: it
// writes sums to the staging memory of a segment, or copies from there what the links have brought,
// and then calls Run::stored().
class Staging : public operation::DeviceMemory {
 public:
  // The operation has begun, is staged and has its mark.
  virtual void begin(operation::ScheduledOperation& operation) noexcept = 0;
  virtual bool idle() const noexcept = 0;
  // Does what can be done now. True when anything was.
  virtual bool advance() = 0;
  // An operation that is complete, which this object then forgets; null when there is none.
  virtual operation::ScheduledOperation* take_complete() noexcept = 0;
  // Whether everything of another operation has been enqueued since the last call.
  virtual bool take_enqueued() noexcept = 0;
};

}  // namespace rondo::lanes
