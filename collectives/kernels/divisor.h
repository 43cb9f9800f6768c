// SPDX-License-Identifier: Apache-2.0
//
// Finish::divide as a divisor of integers, from 1 to 2^63 - 1, so that no division traps.
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace rondo::kernels {
namespace {

RONDO_HD inline std::int64_t integer_divisor(double divide) noexcept {
  if (!(divide >= 1)) return 1;
  return divide < 9223372036854775808.0 ? static_cast<std::int64_t>(divide) : INT64_MAX;
}

}  // namespace
}  // namespace rondo::kernels
