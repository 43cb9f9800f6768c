// SPDX-License-Identifier: Apache-2.0
//
// Adds the partial sums of sums.h in a fixed order, turns them into the moments or the gradient
// sums of this rank, and writes what the rank gives to the collective (bn/statistics).
#pragma once

#include <cstddef>
#include <cstdint>

#include "bn/layer/device/elements.h"
#include "bn/statistics/moments.h"
#include "device/phases.h"

namespace rondo::layer {

namespace {

RONDO_HD inline std::uint64_t mixed_bits(std::uint64_t value) noexcept {
  // SplitMix64's finalizer (Steele, Lea and Flood, 2014).
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
  value = (value ^ value >> 27) * 0x94d049bb133111ebu;
  return value ^ value >> 31;
}

// As put_agreement() of rondo/agreement.h.
RONDO_HD inline void put_number(double* to, std::uint64_t number) noexcept {
  for (std::size_t i = 0; i < SectionHead::agreement / 2; ++i) {
    const std::uint64_t part = number >> (16 * i) & 0xffffu;
    to[2 * i] = static_cast<double>(part);
    to[2 * i + 1] = static_cast<double>(part * part);
  }
}

struct Fold {
  using Arguments = FoldArguments;
  static constexpr unsigned lanes = Arguments::lanes;
  static constexpr unsigned channels_of_block = Arguments::channels_of_block;
  struct Shared {
    double first[device::block_threads], second[device::block_threads];
    std::uint64_t hash[device::block_threads];
  };
  static constexpr int phases = 3;
  // A point that is so many times farther from 0 than the elements leaves few digits of their mean.
  static constexpr double useless = 0x1p24;

  RONDO_HD static void run(int phase, const Arguments& arguments, Shared& shared,
                           const device::GridThread& thread) noexcept {
    if (phase == 0)
      add_lane(arguments, shared, thread);
    else if (phase == 1 && thread.index < channels_of_block)
      finish_channel(arguments, shared, thread);
    if (thread.block == 0 && arguments.section != nullptr)
      hash_history(phase, arguments, shared, thread);
  }

  template <class Visit>
  static void for_each_pointer(Arguments& arguments, Visit&& visit) {
    const std::size_t bytes = arguments.channels * sizeof(double);
    const bool moments = arguments.task != FoldTask::gradients;
    if (arguments.partials != nullptr) visit(arguments.partials, 2 * arguments.parts * bytes);
    if (moments) {
      visit(arguments.K, bytes);
      visit(arguments.center, bytes);
      visit(arguments.offset, bytes);
      visit(arguments.m2, bytes);
      visit(arguments.far, arguments.channels * sizeof(std::uint32_t));
      if (arguments.x != nullptr)
        visit(arguments.x,
              ((arguments.channels - 1) * arguments.stride + 1) * bytes_of(arguments.type));
    } else {
      visit(arguments.mean, bytes);
      visit(arguments.sums, 2 * bytes);
    }
    if (arguments.section != nullptr) {
      visit(arguments.history, bytes);
      // With the word before it.
      --arguments.section;
      visit(arguments.section, (1 + SectionHead::elements) * sizeof(double) + 2 * bytes);
      ++arguments.section;
    }
  }

 private:
  RONDO_HD static bool sums_needed(const Arguments& arguments, std::uint64_t channel) noexcept {
    if (arguments.count == 0 || arguments.task == FoldTask::nothing) return false;
    return arguments.task != FoldTask::moments_again || arguments.far[channel] != 0;
  }

  RONDO_HD static void add_lane(const Arguments& arguments, Shared& shared,
                                const device::GridThread& thread) noexcept {
    // Neighbouring threads load neighbouring channels.
    const std::uint64_t channel =
        std::uint64_t{thread.block} * channels_of_block + thread.index % channels_of_block;
    double first = 0, second = 0;
    if (channel < arguments.channels && sums_needed(arguments, channel))
      for (std::uint64_t part = thread.index / channels_of_block; part < arguments.parts;
           part += lanes) {
        const double* const from = arguments.partials + 2 * part * arguments.channels + channel;
        first += from[0];
        second += from[arguments.channels];
      }
    shared.first[thread.index] = first;
    shared.second[thread.index] = second;
  }

  RONDO_HD static void finish_channel(const Arguments& arguments, Shared& shared,
                                      const device::GridThread& thread) noexcept {
    const std::uint64_t channel = std::uint64_t{thread.block} * channels_of_block + thread.index;
    if (channel >= arguments.channels) return;
    double first = 0, second = 0;
    for (unsigned lane = 0; lane < lanes; ++lane) {
      first += shared.first[lane * channels_of_block + thread.index];
      second += shared.second[lane * channels_of_block + thread.index];
    }
    if (arguments.task == FoldTask::gradients)
      put_gradients(arguments, channel, first, second);
    else
      put_moments(arguments, channel, first, second);
  }

  RONDO_HD static double center_of(const Arguments& arguments, double value) noexcept {
    return arguments.in_f32 ? static_cast<double>(static_cast<float>(value)) : value;
  }

  RONDO_HD static void put_gradients(const Arguments& arguments, std::uint64_t c, double first,
                                     double second) noexcept {
    const double mean = arguments.mean[c];
    second += (center_of(arguments, mean) - mean) * first;
    if (arguments.count == 0) first = second = 0;  // where the mean is NaN
    arguments.sums[c] = first;
    arguments.sums[arguments.channels + c] = second;
    if (arguments.section == nullptr) return;
    double* const to = arguments.section + SectionHead::elements;
    to[c] = first;
    to[arguments.channels + c] = second;
  }

  RONDO_HD static void put_moments(const Arguments& arguments, std::uint64_t c, double first,
                                   double second) noexcept {
    const double K = arguments.K[c];
    if (sums_needed(arguments, c)) {
      const double about =
          arguments.task == FoldTask::moments ? center_of(arguments, K) : arguments.center[c];
      const statistics::LocalChannel local =
          statistics::moments_about(about, arguments.count, first, second, arguments.in_f32);
      const bool again = arguments.task == FoldTask::moments && local.far;
      arguments.offset[c] = local.offset;
      arguments.m2[c] = local.m2;
      arguments.far[c] = again ? 1 : 0;
      arguments.center[c] = again ? next_center(arguments, c, about, local.offset) : about;
    }
    if (arguments.section == nullptr) return;
    const statistics::Terms terms = statistics::terms_about(K, arguments.count, arguments.center[c],
                                                            arguments.offset[c], arguments.m2[c]);
    double* const to = arguments.section + SectionHead::elements;
    to[c] = terms.first;
    to[arguments.channels + c] = terms.second;
  }

  // Where the sums are taken again: about the mean that they gave, or, if they were about a point
  // that tells nothing of it, about the channel's first element.
  RONDO_HD static double next_center(const Arguments& arguments, std::uint64_t c, double about,
                                     double offset) noexcept {
    using statistics::magnitude_of;
    const double first = element(arguments, c * arguments.stride), mean = about + offset;
    const bool told =
        statistics::is_finite(mean) && (magnitude_of(about) <= useless * magnitude_of(mean) ||
                                        magnitude_of(about) <= useless * magnitude_of(first));
    return center_of(arguments, told ? mean : first);
  }

  RONDO_HD static double element(const Arguments& arguments, std::uint64_t at) noexcept {
    return read_value({const_cast<std::byte*>(arguments.x), arguments.type}, at);
  }

  // The hash is a sum of one for each channel, so the order of the threads does not matter.
  RONDO_HD static void hash_history(int phase, const Arguments& arguments, Shared& shared,
                                    const device::GridThread& thread) noexcept {
    constexpr unsigned group = 16;
    std::uint64_t hash = 0;
    if (phase == 0) {
      for (std::uint64_t c = thread.index; c < arguments.channels; c += thread.threads)
        hash += mixed_bits(__builtin_bit_cast(std::uint64_t, arguments.history[c]) +
                           (c + 1) * 0x9e3779b97f4a7c15u);
      shared.hash[thread.index] = hash;
    } else if (phase == 1) {
      if (thread.index % group != 0) return;
      for (unsigned i = thread.index; i < thread.index + group && i < thread.threads; ++i)
        hash += shared.hash[i];
      shared.hash[thread.index] = hash;
    } else if (thread.index == 0) {
      for (unsigned i = 0; i < thread.threads; i += group) hash += shared.hash[i];
      arguments.section[-1] = 0;
      arguments.section[0] = arguments.count;
      put_number(arguments.section + 1, arguments.head.place);
      put_number(arguments.section + 1 + SectionHead::agreement, arguments.head.layer);
      put_number(arguments.section + 1 + 2 * SectionHead::agreement, hash);
    }
  }
};

}  // namespace
}  // namespace rondo::layer
