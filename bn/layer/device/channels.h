// SPDX-License-Identifier: Apache-2.0
//
// The computation of kernels/channels.h, with a thread for each channel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bn/layer/kernels/channels.h"
#include "device/phases.h"

namespace rondo::layer {

namespace {

template <class Visit>
void for_each_pointer_of(ChannelArguments& arguments, Visit&& visit) {
  const std::size_t channels = arguments.channels, bytes = channels * sizeof(double);
  visit(arguments.arrays, array_count * bytes);
  if (arguments.record != nullptr)
    visit(arguments.record, record_elements(channels) * sizeof(double));
  if (arguments.section.data != nullptr) {
    visit(arguments.section.far_word, sizeof(double));
    visit(arguments.section.data, SectionHead::elements * sizeof(double) + 2 * bytes);
  }
  if (arguments.partials != nullptr) visit(arguments.partials, 2 * arguments.parts * bytes);
  if (arguments.x != nullptr)
    visit(arguments.x, ((channels - 1) * arguments.stride + 1) * bytes_of(arguments.type));
  for (Values* values :
       {&arguments.gamma, &arguments.beta, &arguments.running_mean, &arguments.running_variance,
        &arguments.gamma_gradient, &arguments.beta_gradient})
    if (values->data != nullptr) visit(values->data, channels * bytes_of(values->type));
}

struct Channels {
  using Arguments = ChannelArguments;
  struct Shared {};
  static constexpr int phases = 1;

  RONDO_HD static void run(int, const Arguments& arguments, Shared&,
                           const device::GridThread& thread) noexcept {
    const Count count = Channel<AnyValues>::count_of(arguments);
    for (std::uint64_t c = thread.place(); c < arguments.channels; c += thread.all())
      Channel<AnyValues>::run(arguments, c, count);
  }

  template <class Visit>
  static void for_each_pointer(Arguments& arguments, Visit&& visit) {
    for_each_pointer_of(arguments, visit);
  }
};

}  // namespace
}  // namespace rondo::layer
