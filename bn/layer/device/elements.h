// SPDX-License-Identifier: Apache-2.0
//
// Elements of activations as the kernels for GPUs load, compute and store them. Nothing here calls
// a function of the standard library: a GPU has none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/short_floats.h"
#include "bn/layer/device/arguments.h"

namespace rondo::layer {
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

// One element at any address, as f64.
template <class Element>
RONDO_HD double read_element(const std::byte* from) noexcept {
  return static_cast<double>(Element::decode(Loads<Element, Access::anywhere>::load(from).at[0]));
}
template <class Element>
RONDO_HD void write_element(std::byte* to, double value) noexcept {
  using L = Loads<Element, Access::anywhere>;
  L::store(to, {{Element::encode(static_cast<typename Element::Number>(value))}});
}

RONDO_HD inline double read_value(const DeviceValues& from, std::uint64_t i) noexcept {
  const std::byte* const at = from.data + i * bytes_of(from.type);
  switch (from.type) {
    case DType::f64:
      return read_element<DeviceF64>(at);
    case DType::f16:
      return read_element<DeviceF16>(at);
    case DType::bf16:
      return read_element<DeviceBF16>(at);
    default:
      return read_element<DeviceF32>(at);
  }
}

// Rounds to nearest even; for f16 and bf16 first to f32.
RONDO_HD inline void write_value(const DeviceValues& to, std::uint64_t i, double value) noexcept {
  std::byte* const at = to.data + i * bytes_of(to.type);
  switch (to.type) {
    case DType::f64:
      return write_element<DeviceF64>(at, value);
    case DType::f16:
      return write_element<DeviceF16>(at, value);
    case DType::bf16:
      return write_element<DeviceBF16>(at, value);
    default:
      return write_element<DeviceF32>(at, value);
  }
}

}  // namespace
}  // namespace rondo::layer
