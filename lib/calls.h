// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>

#include <rondo/options.h>
#include <rondo/work.h>

#include "collectives/engine/engine.h"
#include "lib/arguments.h"
#include "lib/gpu_lanes.h"
#include "lib/known_calls.h"
#include "lib/own_rooms.h"
#include "lib/plans.h"
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

// Turns the arguments of a collective into a call of the engine, and starts it: checks them, asks
// for a plan and cuts the buffers into segments. Calls that were seen before are found in a table.
// Thread-bound: one thread at a time starts operations of a lane. Throws Error as Communicator
// says.
class CollectiveCalls {
 public:
  CollectiveCalls(const Starting& starting, Plans& plans, const BulkOrder& order)
      : starting_(starting), plans_(plans), order_(order) {}

  Work start(const Arguments& arguments);

 private:
  schedules::Call find(const Arguments& arguments);
  schedules::Call make(const Arguments& arguments);
  std::uint64_t plan_hash(const schedules::Call& call, std::uint64_t counts) const noexcept;
  Work start_on_gpu(const Arguments& arguments, const schedules::Call& call);
  operation::DeviceInside movers_inside(int device, const schedules::Call& call);

  const Starting starting_;
  Plans& plans_;
  const BulkOrder& order_;
  std::array<KnownCalls, lane_count> known_;
};

}  // namespace rondo::lib
