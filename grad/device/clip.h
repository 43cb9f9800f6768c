// SPDX-License-Identifier: Apache-2.0
//
// The kernels that multiply all gradients of a type by the factor that clips them, which they
// compute from the sum of squares on the GPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/short_floats.h"
#include "device/phases.h"
#include "device/several.h"
#include "grad/clipping.h"
#include "grad/device/shares.h"
#include "grad/wire_elements.h"

namespace rondo::grad {

struct ClipArguments {
  std::byte* gradients;   // packs are taken where it is a multiple of 16
  std::uint64_t count;    // of elements
  const double* squares;  // on the GPU: the sum of all
  double max_norm;
};

namespace {

struct ClipF64 {
  using Stored = double;
  RONDO_HD static double clip(double value, double factor) noexcept { return value * factor; }
};
struct ClipF32 {
  using Stored = float;
  RONDO_HD static float clip(float value, double factor) noexcept { return times(value, factor); }
};
template <class Format>
struct ClipShort {
  using Stored = std::uint16_t;
  RONDO_HD static std::uint16_t clip(std::uint16_t code, double factor) noexcept {
    return static_cast<std::uint16_t>(Format::encode(times(Format::decode(code), factor)));
  }
};

template <class Element>
struct Clip {
  using Arguments = ClipArguments;
  using Stored = typename Element::Stored;
  struct Shared {};
  static constexpr int phases = 1;

  RONDO_HD static void run(int, const Arguments& arguments, Shared&,
                           const device::GridThread& thread) noexcept {
    const double factor = clip_factor_of_squares(*arguments.squares, arguments.max_norm);
    if (factor == 1) return;
    constexpr std::uint64_t pack = 16 / sizeof(Stored);
    Shares shares{thread};
    const bool aligned = reinterpret_cast<std::uintptr_t>(arguments.gradients) % 16 == 0;
    const std::uint64_t packs = aligned ? arguments.count / pack : 0;
    shares.each(packs, [&](std::uint64_t i) { clip<pack>(arguments, pack * i, factor); });
    shares.each(arguments.count - pack * packs,
                [&](std::uint64_t i) { clip<1>(arguments, pack * packs + i, factor); });
  }

  template <class Visit>
  static void for_each_pointer(Arguments& arguments, Visit&& visit) {
    visit(arguments.gradients, arguments.count * sizeof(Stored));
    visit(arguments.squares, sizeof(double));
  }

 private:
  template <std::size_t Length>
  RONDO_HD static void clip(const Arguments& arguments, std::uint64_t i, double factor) noexcept {
    std::byte* const at = arguments.gradients + i * sizeof(Stored);
    auto values = device::Several<Stored, Length>::load(at);
    for (std::size_t k = 0; k < Length; ++k) values.at[k] = Element::clip(values.at[k], factor);
    values.store(at);
  }
};

}  // namespace
}  // namespace rondo::grad
