// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "base/host_device.h"

namespace rondo::device {
namespace {

// Length values that a thread loads and stores at once.
template <class Value, std::size_t Length>
struct alignas(sizeof(Value) * Length) Several {
  Value at[Length];

  RONDO_HD static Several load(const std::byte* from) noexcept {
    Several values;
    __builtin_memcpy(&values, __builtin_assume_aligned(from, alignof(Several)), sizeof values);
    return values;
  }
  RONDO_HD void store(std::byte* to) const noexcept {
    __builtin_memcpy(__builtin_assume_aligned(to, alignof(Several)), this, sizeof *this);
  }
};

}  // namespace
}  // namespace rondo::device
