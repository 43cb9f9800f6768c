// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/types.h>

#include <cstdint>

namespace rondo::tools {

// The bits of `value` in a floating-point type, rounded once to nearest even. The value must be
// finite and not overflow.
std::uint64_t encode_float(DType type, double value);

// Every integer from 0 to this is a value of the type.
std::uint64_t largest_exact_integer(DType type);

}  // namespace rondo::tools
