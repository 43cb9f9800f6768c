// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation/recorder.h"

#include <algorithm>
#include <atomic>
#include <iterator>

namespace rondo::operation {

namespace {

// Copies one word after the other. A wider load of words that were just stored one by one waits
// until all stores before them are done, among these the one of a message that a peer is reading.
void copy_by_words(OperationTimes& to, const OperationTimes& from) noexcept {
  const auto copy = [](auto& its, const auto& value) {
    its = value;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  };
  copy(to.called, from.called);
  copy(to.sent, from.sent);
  copy(to.arrived, from.arrived);
  copy(to.copied, from.copied);
  copy(to.stored, from.stored);
  copy(to.last, from.last);
  copy(to.late, from.late);
}

}  // namespace

void Recorder::write(Record& record, const Operation& operation, RecordState state,
                     base::TimePoint now) noexcept {
  operation.outline(record);
  record.lane = operation.lane;
  record.state = state;
  record.number = operation.number;
  copy_by_words(record.times, operation.times);
  record.ended = now;
  if (operation.tag[0] == '\0')
    record.tag[0] = '\0';
  else
    std::copy_n(operation.tag, std::size(operation.tag), record.tag);
}

}  // namespace rondo::operation
