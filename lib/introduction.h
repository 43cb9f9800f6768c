// SPDX-License-Identifier: Apache-2.0
//
// Writes to the log what people look for first when something is slow or wrong. At RONDO_LOG=info:
// where the ranks are, what they use and why. At debug: each peer. Thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/options.h>

#include "base/clock.h"
#include "collectives/plan/planner.h"
#include "collectives/schedules/hosts.h"
#include "lib/core_share.h"
#include "lib/rendezvous/rendezvous.h"
#include "transports/transport.h"

namespace rondo::lib {

struct Introduction {
  const rendezvous::Place& place;
  const Options& options;
  const schedules::Hosts& hosts;
  std::span<const transports::Transport* const> routes;  // by rank; null for this one
  std::span<const std::string> passed_over;  // by rank: why nearer transports do not reach it
  std::string constants_from;                // "measured", "a file" ...
  const PlanConstants& constants;
  const HostCores& cores;  // of this rank's host
  nanoseconds took;
};

// Writes several lines at info, and one for each peer at debug.
void introduce(const Introduction& introduction);

// Writes the planner's choice for a new size: at info on rank 0, at debug on the others.
void log_plan(const rendezvous::Place& place, Collective operation, std::size_t bytes,
              const plan::Plan& plan, std::string_view transports);

}  // namespace rondo::lib
