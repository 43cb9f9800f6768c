// SPDX-License-Identifier: Apache-2.0
//
// Elements of activations as the kernels for GPUs load and store them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bn/layer/device/arguments.h"
#include "bn/layer/kernels/values.h"

namespace rondo::layer {
namespace {

template <Access which>
struct AccessIs {
  static constexpr Access access = which;
};

// Calls function(AccessIs<access>()).
template <class Function>
RONDO_HD inline auto with_access(Access access, Function&& function) noexcept {
  if (access == Access::packs) return function(AccessIs<Access::packs>());
  if (access == Access::elements) return function(AccessIs<Access::elements>());
  return function(AccessIs<Access::anywhere>());
}

template <class Element, Access access>
struct Loads {
  using Stored = typename Element::Stored;
  static constexpr std::size_t length = access == Access::packs ? pack_bytes / sizeof(Stored) : 1;
  static constexpr std::size_t alignment = access == Access::anywhere ? 1 : length * sizeof(Stored);
  struct alignas(alignment < alignof(Stored) ? alignof(Stored) : alignment) Elements {
    Stored at[length];
  };

  RONDO_HD static Elements load(const std::byte* from) noexcept {
    Elements elements;
    if constexpr (alignment == 1)
      __builtin_memcpy(&elements, from, sizeof elements);
    else
      __builtin_memcpy(&elements, __builtin_assume_aligned(from, alignment), sizeof elements);
    return elements;
  }
  RONDO_HD static void store(std::byte* to, const Elements& elements) noexcept {
    if constexpr (alignment == 1)
      __builtin_memcpy(to, &elements, sizeof elements);
    else
      __builtin_memcpy(__builtin_assume_aligned(to, alignment), &elements, sizeof elements);
  }
};

}  // namespace
}  // namespace rondo::layer
