// SPDX-License-Identifier: Apache-2.0
//
// Values of each channel in memory of the caller, of f64, f32, f16 or bf16 at any address, as the
// f64 in which batch norm computes. Nothing here calls a function of the standard library: a GPU
// has none.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/host_device.h"
#include "base/short_floats.h"
#include "bn/layer/kernels/arguments.h"

namespace rondo::layer {
namespace {

// Stored: in memory. Number: the type of the passes. Sum: the type in which the few elements that a
// thread of a GPU loads at once are added; from there on sums are f64.
template <class T>
struct Real {
  using Stored = T;
  using Number = T;
  using Sum = double;
  RONDO_HD static Number decode(Stored stored) noexcept { return stored; }
  RONDO_HD static Stored encode(Number value) noexcept { return value; }
};

template <class Format>
struct ShortReal {
  using Stored = std::uint16_t;
  using Number = float;
  using Sum = float;
  RONDO_HD static Number decode(Stored stored) noexcept { return Format::decode(stored); }
  RONDO_HD static Stored encode(Number value) noexcept {
    return static_cast<Stored>(Format::encode(value));
  }
};

using RealF64 = Real<double>;
using RealF32 = Real<float>;
using RealF16 = ShortReal<base::F16>;
using RealBF16 = ShortReal<base::BF16>;

// Calls function(element) with the element type of f64, f32, f16 or bf16.
template <class Function>
RONDO_HD inline auto with_real(DType type, Function&& function) noexcept {
  switch (type) {
    case DType::f64:
      return function(RealF64());
    case DType::f16:
      return function(RealF16());
    case DType::bf16:
      return function(RealBF16());
    default:
      return function(RealF32());
  }
}

// size_of() for the four types; that one is for the processor only.
RONDO_HD inline std::size_t bytes_of(DType type) noexcept {
  return type == DType::f64 ? 8 : type == DType::f32 ? 4 : 2;
}

// Access to values of one type.
template <class Element>
struct ValuesOf {
  RONDO_HD static double read(const Values& from, std::uint64_t i) noexcept {
    typename Element::Stored stored;
    __builtin_memcpy(&stored, from.data + i * sizeof stored, sizeof stored);
    return static_cast<double>(Element::decode(stored));
  }
  // Rounds to nearest even; for f16 and bf16 first to f32.
  RONDO_HD static void write(const Values& to, std::uint64_t i, double value) noexcept {
    const auto stored = Element::encode(static_cast<typename Element::Number>(value));
    __builtin_memcpy(to.data + i * sizeof stored, &stored, sizeof stored);
  }
};

// Access to values of any type.
struct AnyValues {
  RONDO_HD static double read(const Values& from, std::uint64_t i) noexcept {
    return with_real(from.type,
                     [&](auto element) { return ValuesOf<decltype(element)>::read(from, i); });
  }
  RONDO_HD static void write(const Values& to, std::uint64_t i, double value) noexcept {
    with_real(to.type, [&](auto element) { ValuesOf<decltype(element)>::write(to, i, value); });
  }
};

}  // namespace
}  // namespace rondo::layer
