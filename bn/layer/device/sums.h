// SPDX-License-Identifier: Apache-2.0
//
// Sums over the elements of each channel, in blocks of a fixed order: (x - center) and its square,
// or dy and dy * (x - center). A block of threads adds up a part of one channel (runs), or of a
// band of neighbouring channels (rows), and writes a partial sum, which fold.h adds to the others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bn/layer/device/elements.h"
#include "device/phases.h"

namespace rondo::layer {

namespace {

template <class Element, bool gradients>
struct Sums {
  using Arguments = SumArguments;
  static constexpr std::size_t most = pack_bytes / sizeof(typename Element::Stored);
  struct Shared {
    double first[device::block_threads][most];
    double second[device::block_threads][most];
  };
  static constexpr int phases = 3;

  RONDO_HD static void run(int phase, const Arguments& arguments, Shared& shared,
                           const device::GridThread& thread) noexcept {
    const Place place{thread.block % arguments.bands, thread.block / arguments.bands};
    if (arguments.shape.runs) {
      if (arguments.wanted != nullptr && arguments.wanted[place.band] == 0) return;
      if (phase == 0) return load_run(arguments, place, shared, thread);
      return fold_run(phase, arguments, place, shared, thread);
    }
    if (phase == 0)
      return with_access(arguments.access, [&](auto is) {
        add_rows<decltype(is)::access>(arguments, place, shared, thread);
      });
    if (phase == 1) fold_rows(arguments, place, shared, thread);
  }

  template <class Visit>
  static void for_each_pointer(Arguments& arguments, Visit&& visit) {
    const std::size_t bytes = arguments.shape.elements() * sizeof(typename Element::Stored),
                      channels = arguments.shape.channels;
    visit(arguments.x, bytes);
    if (arguments.dy != nullptr) visit(arguments.dy, bytes);
    visit(arguments.center, channels * sizeof(double));
    if (arguments.wanted != nullptr) visit(arguments.wanted, channels * sizeof(std::uint32_t));
    visit(arguments.partials, 2 * arguments.parts * channels * sizeof(double));
  }

 private:
  struct Place {
    std::uint32_t band, part;
  };
  struct Pair {
    double first = 0, second = 0;
  };
  using Sum = typename Element::Sum;

  // The first and the end of `count` things that the part has.
  RONDO_HD static std::uint64_t begin_of(std::uint64_t count, std::uint64_t part,
                                         const Arguments& arguments) noexcept {
    return count * part / arguments.parts;
  }

  // One load of x, and in gradients of dy.
  template <Access access>
  struct Loaded {
    using L = Loads<Element, access>;
    typename L::Elements x, dy;
    RONDO_HD Loaded(const Arguments& arguments, std::uint64_t number) noexcept {
      x = L::load(arguments.x + number * sizeof(x));
      if constexpr (gradients) dy = L::load(arguments.dy + number * sizeof(x));
    }
    // The terms of element i.
    RONDO_HD void terms(std::size_t i, Sum center, Sum& first, Sum& second) const noexcept {
      const Sum away = static_cast<Sum>(Element::decode(x.at[i])) - center;
      if constexpr (gradients)
        first = static_cast<Sum>(Element::decode(dy.at[i]));
      else
        first = away;
      second = first * away;
    }
  };

  RONDO_HD static void load_run(const Arguments& arguments, const Place& place, Shared& shared,
                                const device::GridThread& thread) noexcept {
    const Pair sums = with_access(arguments.access, [&](auto is) {
      return add_run<decltype(is)::access>(arguments, place, thread);
    });
    shared.first[thread.index][0] = sums.first;
    shared.second[thread.index][0] = sums.second;
  }

  template <Access access>
  RONDO_HD static Pair add_run(const Arguments& arguments, const Place& place,
                               const device::GridThread& thread) noexcept {
    constexpr std::size_t length = Loads<Element, access>::length;
    const DeviceShape& shape = arguments.shape;
    const std::uint64_t in_run = shape.spatial / length, all = shape.samples * in_run;
    const std::uint64_t end = begin_of(all, place.part + 1, arguments);
    std::uint64_t at = begin_of(all, place.part, arguments) + thread.index;
    // A division for each load would cost more than the load.
    std::uint64_t sample = at / in_run, position = at % in_run;
    const std::uint64_t samples = thread.threads / in_run, positions = thread.threads % in_run;
    const Sum center = static_cast<Sum>(arguments.center[place.band]);
    Pair sums;
    for (; at < end; at += thread.threads) {
      const Loaded<access> loaded(arguments,
                                  (sample * shape.channels + place.band) * in_run + position);
      Sum first = 0, second = 0;
      loaded.terms(0, center, first, second);
      for (std::size_t i = 1; i < length; ++i) {
        Sum next_first, next_second;
        loaded.terms(i, center, next_first, next_second);
        first += next_first;
        second += next_second;
      }
      sums.first += static_cast<double>(first);
      sums.second += static_cast<double>(second);
      sample += samples;
      position += positions;
      if (position >= in_run) {
        position -= in_run;
        ++sample;
      }
    }
    return sums;
  }

  // Adds the sums of the threads: first in groups, then the groups.
  RONDO_HD static void fold_run(int phase, const Arguments& arguments, const Place& place,
                                Shared& shared, const device::GridThread& thread) noexcept {
    constexpr unsigned group = 16;
    const unsigned step = phase == 1 ? 1 : group;
    const unsigned begin = phase == 1 ? thread.index * group : 0;
    const unsigned end = phase == 1 ? begin + group : thread.threads;
    if (begin >= thread.threads || (phase == 2 && thread.index > 0)) return;
    Pair sums;
    for (unsigned i = begin; i < end && i < thread.threads; i += step) {
      sums.first += shared.first[i][0];
      sums.second += shared.second[i][0];
    }
    if (phase == 1) {
      shared.first[begin][0] = sums.first;
      shared.second[begin][0] = sums.second;
    } else {
      put(arguments, place, place.band, sums);
    }
  }

  template <std::size_t length>
  RONDO_HD static bool any_wanted(const Arguments& arguments, std::uint64_t channel) noexcept {
    if (arguments.wanted == nullptr) return true;
    std::uint32_t any = 0;
    for (std::size_t i = 0; i < length; ++i) any |= arguments.wanted[channel + i];
    return any != 0;
  }

  template <Access access>
  RONDO_HD static void add_rows(const Arguments& arguments, const Place& place, Shared& shared,
                                const device::GridThread& thread) noexcept {
    constexpr std::size_t length = Loads<Element, access>::length;
    const std::uint64_t columns = arguments.shape.channels / length;
    const std::uint64_t column =
        std::uint64_t{place.band} * arguments.width + thread.index % arguments.width;
    double first[length] = {}, second[length] = {};
    if (column < columns && any_wanted<length>(arguments, column * length)) {
      Sum center[length];
      for (std::size_t i = 0; i < length; ++i)
        center[i] = static_cast<Sum>(arguments.center[column * length + i]);
      const std::uint64_t rows = arguments.shape.samples * arguments.shape.spatial;
      const std::uint64_t end = begin_of(rows, place.part + 1, arguments);
      const unsigned height = thread.threads / arguments.width;
      std::uint64_t row = begin_of(rows, place.part, arguments) + thread.index / arguments.width;
      for (; row < end; row += height) {
        const Loaded<access> loaded(arguments, row * columns + column);
        for (std::size_t i = 0; i < length; ++i) {
          Sum next_first, next_second;
          loaded.terms(i, center[i], next_first, next_second);
          first[i] += static_cast<double>(next_first);
          second[i] += static_cast<double>(next_second);
        }
      }
    }
    for (std::size_t i = 0; i < length; ++i) {
      shared.first[thread.index][i] = first[i];
      shared.second[thread.index][i] = second[i];
    }
  }

  RONDO_HD static void fold_rows(const Arguments& arguments, const Place& place, Shared& shared,
                                 const device::GridThread& thread) noexcept {
    const std::uint64_t length = arguments.access == Access::packs ? most : 1;
    const std::uint64_t first_channel = std::uint64_t{place.band} * arguments.width * length;
    for (std::uint64_t i = thread.index; i < arguments.width * length; i += thread.threads) {
      const std::uint64_t channel = first_channel + i;
      if (channel >= arguments.shape.channels) return;
      Pair sums;
      for (std::uint64_t t = i / length; t < thread.threads; t += arguments.width) {
        sums.first += shared.first[t][i % length];
        sums.second += shared.second[t][i % length];
      }
      put(arguments, place, channel, sums);
    }
  }

  RONDO_HD static void put(const Arguments& arguments, const Place& place, std::uint64_t channel,
                           const Pair& sums) noexcept {
    const std::uint64_t channels = arguments.shape.channels;
    double* const to = arguments.partials + 2 * place.part * channels + channel;
    to[0] = sums.first;
    to[channels] = sums.second;
  }
};

}  // namespace
}  // namespace rondo::layer
