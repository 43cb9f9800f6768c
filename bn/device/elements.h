// SPDX-License-Identifier: Apache-2.0
//
// Elements of activations as the kernels for GPUs load, compute and store them. Nothing here calls
// a function of the standard library: a GPU has none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/short_floats.h"
#include "bn/device/arguments.h"

namespace rondo::bn {
namespace {

// Stored: in memory. Number: the type of the passes. Sum: the type in which the few elements that a
// thread loads at once are added; from there on sums are f64.
template <class T>
struct DeviceReal {
  using Stored = T;
  using Number = T;
  using Sum = double;
  RONDO_HD static Number decode(Stored stored) noexcept { return stored; }
  RONDO_HD static Stored encode(Number value) noexcept { return value; }
};

template <class Format>
struct DeviceShort {
  using Stored = std::uint16_t;
  using Number = float;
  using Sum = float;
  RONDO_HD static Number decode(Stored stored) noexcept { return Format::decode(stored); }
  RONDO_HD static Stored encode(Number value) noexcept {
    return static_cast<Stored>(Format::encode(value));
  }
};

using DeviceF64 = DeviceReal<double>;
using DeviceF32 = DeviceReal<float>;
using DeviceF16 = DeviceShort<base::F16>;
using DeviceBF16 = DeviceShort<base::BF16>;

// size_of() for the four types; that one is for the processor only.
RONDO_HD inline std::size_t bytes_of(DType type) noexcept {
  return type == DType::f64 ? 8 : type == DType::f32 ? 4 : 2;
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

// The gradient that reaches y, where y = relu(...). As PyTorch's, it is kept where y is NaN.
template <class Number>
RONDO_HD Number behind_relu(Number y, Number dy) noexcept {
  return y <= 0 ? Number{0} : dy;
}

}  // namespace
}  // namespace rondo::bn
