// SPDX-License-Identifier: Apache-2.0
//
// Adds the partial sums of sums.h in a fixed order, and folds them (kernels/fold.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "bn/layer/device/arguments.h"
#include "bn/layer/device/channels.h"
#include "bn/layer/kernels/fold.h"
#include "device/phases.h"

namespace rondo::layer {

namespace {

struct Fold {
  using Arguments = ChannelArguments;
  struct Shared {
    double first[device::block_threads], second[device::block_threads];
    std::uint64_t hash[device::block_threads];
  };
  static constexpr int phases = 3;

  RONDO_HD static void run(int phase, const Arguments& arguments, Shared& shared,
                           const device::GridThread& thread) noexcept {
    if (phase == 0)
      add_lane(arguments, shared, thread);
    else if (phase == 1 && thread.index < fold_channels)
      finish_channel(arguments, shared, thread);
    if (thread.block == 0 && arguments.section.data != nullptr)
      hash_history(phase, arguments, shared, thread);
  }

  template <class Visit>
  static void for_each_pointer(Arguments& arguments, Visit&& visit) {
    for_each_pointer_of(arguments, visit);
  }

 private:
  RONDO_HD static void add_lane(const Arguments& arguments, Shared& shared,
                                const device::GridThread& thread) noexcept {
    // Neighbouring threads load neighbouring channels.
    const std::uint64_t channel =
        std::uint64_t{thread.block} * fold_channels + thread.index % fold_channels;
    double first = 0, second = 0;
    if (channel < arguments.channels && ChannelFold::sums_needed(arguments, channel))
      for (std::uint64_t part = thread.index / fold_channels; part < arguments.parts;
           part += fold_lanes) {
        const double* const from = arguments.partials + 2 * part * arguments.channels + channel;
        first += from[0];
        second += from[arguments.channels];
      }
    shared.first[thread.index] = first;
    shared.second[thread.index] = second;
  }

  RONDO_HD static void finish_channel(const Arguments& arguments, Shared& shared,
                                      const device::GridThread& thread) noexcept {
    const std::uint64_t channel = std::uint64_t{thread.block} * fold_channels + thread.index;
    if (channel >= arguments.channels) return;
    double first = 0, second = 0;
    for (unsigned lane = 0; lane < fold_lanes; ++lane) {
      first += shared.first[lane * fold_channels + thread.index];
      second += shared.second[lane * fold_channels + thread.index];
    }
    ChannelFold::run(arguments, channel, first, second);
  }

  RONDO_HD static void hash_history(int phase, const Arguments& arguments, Shared& shared,
                                    const device::GridThread& thread) noexcept {
    constexpr unsigned group = 16;
    std::uint64_t hash = 0;
    if (phase == 0) {
      for (std::uint64_t c = thread.index; c < arguments.channels; c += thread.threads)
        hash += ChannelFold::history_term(arguments, c);
      shared.hash[thread.index] = hash;
    } else if (phase == 1) {
      if (thread.index % group != 0) return;
      for (unsigned i = thread.index; i < thread.index + group && i < thread.threads; ++i)
        hash += shared.hash[i];
      shared.hash[thread.index] = hash;
    } else if (thread.index == 0) {
      for (unsigned i = 0; i < thread.threads; i += group) hash += shared.hash[i];
      ChannelFold::put_head(arguments, hash);
    }
  }
};

}  // namespace
}  // namespace rondo::layer
