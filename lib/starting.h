// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include <rondo/options.h>

#include "collectives/engine/engine.h"
#include "lib/gpu_lanes.h"
#include "lib/rendezvous/rendezvous.h"

namespace rondo::lib {

// Things that every call of a communicator needs to start. They outlive it.
struct Starting {
  const rendezvous::Place& place;
  const Options& options;
  engine::Engine& engine;
  GpuLanes& gpus;
  GpuLanes::Needs gpu_needs;

  nanoseconds time_limit(const OpOptions& call) const noexcept {
    constexpr milliseconds longest_deadline = std::chrono::hours{24 * 365};
    return std::min(call.deadline.count() > 0 ? call.deadline : options.deadline, longest_deadline);
  }
};

}  // namespace rondo::lib
