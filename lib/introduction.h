// SPDX-License-Identifier: Apache-2.0
//
// Writes to the log what people look for first when something is slow or wrong. At RONDO_LOG=info:
// where the ranks are, what they use and why. At debug: each peer. Thread-safe.
#pragma once

#include <string_view>

#include <rondo/options.h>

#include "base/clock.h"
#include "lib/plans.h"
#include "lib/record.h"
#include "lib/rendezvous/rendezvous.h"
#include "lib/routes.h"

namespace rondo::lib {

// Writes several lines at info, and one for each peer at debug. took: how long connect() has taken.
void introduce(const rendezvous::Place& place, const Options& options, const HostMap& hosts,
               const Routes& routes, const Plans& plans, nanoseconds took);

// Writes the planner's choice for a new size: at info on rank 0, at debug on the others.
void log_plan(const rendezvous::Place& place, Collective operation, std::size_t bytes,
              const plan::Plan& plan, std::string_view transports);

}  // namespace rondo::lib
