// SPDX-License-Identifier: Apache-2.0
//
// The planner's constants as they come from a file or from another rank: not to be trusted before
// is_sane().
#pragma once

#include <string>

#include <rondo/constants.h>

#include "base/bytes.h"
#include "collectives/plan/planner.h"

namespace rondo::wire {

// True if every value is finite and in its range: latencies up to 10 s, bytes up to 1 ms each,
// frames up to 1 s. Thread-safe, like all functions here.
bool is_sane(const PlanConstants& constants) noexcept;
// Returns the constants with every value moved into its range.
PlanConstants make_sane(const PlanConstants& constants) noexcept;

// Writes and reads seven f64, as their bits.
void put_constants(base::Writer& writer, const PlanConstants& constants);
PlanConstants get_constants(base::Reader& reader) noexcept;  // maybe not sane

}  // namespace rondo::wire
