// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#include "collectives/engine/engine.h"

namespace rondo::engine {

// Takes the engine's lock and meanwhile tells a driver that spins to let this thread in.
class Engine::Guard {
 public:
  static std::unique_lock<std::mutex> acquire(Engine& engine) {
    std::unique_lock lock(engine.mutex_, std::try_to_lock);
    if (!lock.owns_lock()) {
      engine.wanting_.fetch_add(1, std::memory_order_relaxed);
      lock.lock();
      engine.wanting_.fetch_sub(1, std::memory_order_relaxed);
    }
    return lock;
  }
};

}  // namespace rondo::engine
