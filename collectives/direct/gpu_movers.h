// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/clock.h"
#include "collectives/direct/gpu_mover.h"

namespace rondo::direct {

// The movers that an owner of direct lanes has used. They outlive the object.
// Threads: thread-bound to whoever holds the engine's lock.
class GpuMovers {
 public:
  // Before a number is taken for an operation that uses the mover.
  void add_gpu(GpuMover& mover) {
    if (std::ranges::find(all_, &mover) == all_.end()) all_.push_back(&mover);
  }
  // After the lanes forgot their operations: waits for copies and kernels under way, but not beyond
  // `until`. False: some still are.
  bool await_copies(base::TimePoint until) noexcept {
    bool ended = true;
    for (GpuMover* mover : all_) {
      if (mover->port().await_copies(until))
        mover->release_windows();
      else
        ended = false;
    }
    return ended;
  }
  // Counts pinned memory and slots.
  std::size_t bytes() const noexcept {
    std::size_t bytes = 0;
    for (const GpuMover* mover : all_) bytes += mover->port().bytes() + mover->slots().bytes();
    return bytes;
  }

 private:
  std::vector<GpuMover*> all_;
};

}  // namespace rondo::direct
