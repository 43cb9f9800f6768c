// SPDX-License-Identifier: Apache-2.0
//
// What people look for first when something is slow or wrong, in the log: RONDO_LOG=info for where the ranks stand, what they use and why;
// debug for every peer.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/options.h>

#include "base/clock.h"
#include "collectives/hosts.h"
#include "collectives/planner.h"
#include "lib/rendezvous.h"
#include "transports/transport.h"

namespace rondo {

struct Introduction {
  const Place& place;
  const Options& options;
  const Hosts& hosts;
  std::span<const Transport* const> routes;  // by rank; null for this one
  std::span<const std::string> passed_over;  // by rank: why nearer transports do not reach it
  std::string constants_from;                // "measured", "a file" ...
  const CostConstants& constants;
  nanoseconds took;
};

// Several lines at info, one for each peer more at debug. Nothing when the level is lower.
void introduce(const Introduction& introduction);

// At info on rank 0, at debug on every rank: what the planner has chosen for a size that is new.
void log_plan(const Place& place, Collective operation, std::size_t bytes, const Plan& plan,
              std::string_view transports);

}  // namespace rondo
