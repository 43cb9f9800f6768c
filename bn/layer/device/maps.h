// SPDX-License-Identifier: Apache-2.0
//
// The elementwise passes over activations, with the coefficients of kernels/coefficients.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bn/layer/device/elements.h"
#include "bn/layer/kernels/coefficients.h"
#include "device/phases.h"

namespace rondo::layer {

namespace {

template <class Element, bool backward>
struct Maps {
  using Arguments = MapArguments;
  struct Shared {};
  static constexpr int phases = 1;

  RONDO_HD static void run(int, const Arguments& arguments, Shared&,
                           const device::GridThread& thread) noexcept {
    with_access(arguments.access, [&](auto is) { map<decltype(is)::access>(arguments, thread); });
  }

  template <class Visit>
  static void for_each_pointer(Arguments& arguments, Visit&& visit) {
    const std::size_t bytes = arguments.shape.elements() * sizeof(typename Element::Stored);
    visit(arguments.x, bytes);
    if (backward) visit(arguments.dy, bytes);
    visit(arguments.out, bytes);
    visit(arguments.lines, coefficient_count * arguments.shape.channels * sizeof(Number));
  }

 private:
  using Number = typename Element::Number;
  enum Line : std::uint64_t { center, scale, slope, shift, gradient_center };

  template <Access access>
  RONDO_HD static void map(const Arguments& arguments, const device::GridThread& thread) noexcept {
    constexpr std::size_t length = Loads<Element, access>::length;
    const std::uint64_t loads = arguments.shape.elements() / length;
    RONDO_ROLLED
    for (std::uint64_t i = thread.place(); i < loads; i += thread.all())
      map_load<access>(arguments, i, channel_of<length>(arguments.shape, i, loads));
  }

  // Divisions of 32 bits are several times as fast on a GPU as those of 64 bits.
  template <std::size_t length>
  RONDO_HD static std::uint64_t channel_of(const DeviceShape& shape, std::uint64_t i,
                                           std::uint64_t loads) noexcept {
    if (loads <= UINT32_MAX && shape.channels <= UINT32_MAX)
      return channel_of<length, std::uint32_t>(shape, static_cast<std::uint32_t>(i));
    return channel_of<length, std::uint64_t>(shape, i);
  }
  template <std::size_t length, class Index>
  RONDO_HD static std::uint64_t channel_of(const DeviceShape& shape, Index i) noexcept {
    const auto channels = static_cast<Index>(shape.channels);
    if (shape.runs) return i / static_cast<Index>(shape.spatial / length) % channels;
    return static_cast<std::uint64_t>(i % static_cast<Index>(channels / length)) * length;
  }

  RONDO_HD static Number line(const Arguments& arguments, Line which,
                              std::uint64_t channel) noexcept {
    return reinterpret_cast<const Number*>(
        arguments.lines)[which * arguments.shape.channels + channel];
  }

  template <Access access>
  RONDO_HD static void map_load(const Arguments& arguments, std::uint64_t number,
                                std::uint64_t first_channel) noexcept {
    using L = Loads<Element, access>;
    typename L::Elements x, dy{}, out;
    const std::uint64_t offset = number * sizeof(x);
    x = L::load(arguments.x + offset);
    if constexpr (backward) dy = L::load(arguments.dy + offset);
    for (std::size_t i = 0; i < L::length; ++i) {
      const std::uint64_t c = first_channel + (arguments.shape.runs ? 0 : i);
      const Number away = Element::decode(x.at[i]) - line(arguments, center, c);
      Number value;
      if constexpr (backward)
        value = (Element::decode(dy.at[i]) - line(arguments, gradient_center, c)) *
                    line(arguments, scale, c) +
                (away * line(arguments, slope, c) + line(arguments, shift, c));
      else
        value = away * line(arguments, scale, c) + line(arguments, shift, c);
      out.at[i] = Element::encode(value);
    }
    L::store(arguments.out + offset, out);
  }
};

}  // namespace
}  // namespace rondo::layer
