// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/mutex.h"
#include "base/thread_annotations.h"
#include "collectives/operation/bell.h"

namespace rondo::operation {

// Wakes the driver of an engine from a thread that may outlive the engine, such as one of CUDA's
// driver. Thread-safe.
class Waker {
 public:
  explicit Waker(Bell& bell) noexcept : bell_(&bell) {}
  void wake() {
    const base::Locked lock(mutex_);
    if (bell_ != nullptr) bell_->ring();
  }
  // The engine ends: wake() does nothing from now on.
  void detach() {
    const base::Locked lock(mutex_);
    bell_ = nullptr;
  }

 private:
  base::Mutex mutex_;
  Bell* bell_ RONDO_GUARDED_BY(mutex_);
};

}  // namespace rondo::operation
