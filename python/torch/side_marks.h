// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Event.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python/torch/call_stream.h"

namespace rondo::python {

// Marks the ends of copies that follow the operations of a group on GPUs: the newest mark on each
// stream that CallStream::side() has given. A work that has ended may have copies there that are
// still to come, also when nobody has the work any more. Thread-safe.
class SideMarks {
 public:
  using Mark = std::shared_ptr<const c10::Event>;

  // Comes after all that is enqueued on the side now.
  Mark add(const c10::Stream& side) {
    const std::lock_guard lock(mutex_);  // the newest mark is the one that is recorded last
    auto event = std::make_shared<c10::Event>(side.device_type());
    event->record(side);
    return newest_[side] = std::move(event);
  }
  // This thread's current streams come after all marks.
  void order() const {
    for (const Mark& mark : all()) mark->block(CallStream::current(mark->device()));
  }
  // Whether all marks have been reached.
  bool have_ended() const {
    return std::ranges::all_of(all(), [](const Mark& mark) { return mark->query(); });
  }
  void clear() noexcept {
    const std::lock_guard lock(mutex_);
    newest_.clear();
  }

 private:
  std::vector<Mark> all() const {
    std::vector<Mark> marks;
    const std::lock_guard lock(mutex_);
    for (const auto& [side, mark] : newest_) marks.push_back(mark);
    return marks;
  }

  mutable std::mutex mutex_;
  std::unordered_map<c10::Stream, Mark> newest_;
};

}  // namespace rondo::python
