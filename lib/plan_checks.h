// SPDX-License-Identifier: Apache-2.0
//
// Checks the arguments of plan.h. Each function throws Error, which says what is possible.
// Thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

#include "collectives/schedules/schedule.h"

namespace rondo::lib {

// Throws Error(invalid_argument) for an unknown name, Error(unsupported) if the operation does not
// have the algorithm.
schedules::Algorithm find_algorithm(std::string_view name, Collective operation);
// Throws Error(invalid_argument): "depth is 0; possible are 1 to 1000000".
void require_between(std::string_view name, std::int64_t value, std::int64_t first,
                     std::int64_t last);

}  // namespace rondo::lib
