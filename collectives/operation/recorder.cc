// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation/recorder.h"

#include <algorithm>
#include <iterator>

namespace rondo::operation {

void Recorder::write(Record& record, const Operation& operation, RecordState state,
                     base::TimePoint now) noexcept {
  operation.outline(record);
  record.lane = operation.lane;
  record.state = state;
  record.number = operation.number;
  record.times = operation.times;
  record.ended = now;
  std::copy_n(operation.tag, std::size(operation.tag), record.tag);
}

}  // namespace rondo::operation
