// SPDX-License-Identifier: Apache-2.0
//
// The planner's constants as they come from a file or from another rank: never trusted before
// is_sane().
#pragma once

#include <string>

#include <rondo/constants.h>

#include "base/bytes.h"
#include "collectives/plan/planner.h"

namespace rondo::lib {

// Every time finite and in its range: latencies to 10 s, bytes to a millisecond each, frames to a
// second.
bool is_sane(const plan::CostConstants& constants) noexcept;
// The same with every value moved into its range.
plan::CostConstants make_sane(const plan::CostConstants& constants) noexcept;

plan::CostConstants to_costs(const PlanConstants& constants) noexcept;
PlanConstants to_public(const plan::CostConstants& constants) noexcept;

// Seven f64, as their bits.
void put_constants(base::Writer& writer, const plan::CostConstants& constants);
plan::CostConstants get_constants(base::Reader& reader) noexcept;  // may be insane

}  // namespace rondo::lib
