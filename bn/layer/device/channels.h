// SPDX-License-Identifier: Apache-2.0
//
// The computation between a collective and a pass over activations, with a thread for each channel.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bn/layer/device/elements.h"
#include "bn/layer/kernels/coefficients.h"
#include "bn/statistics/moments.h"
#include "device/phases.h"

namespace rondo::layer {

namespace {

struct Channels {
  using Arguments = ChannelsArguments;
  struct Shared {};
  static constexpr int phases = 1;

  RONDO_HD static void run(int, const Arguments& arguments, Shared&,
                           const device::GridThread& thread) noexcept {
    for (std::uint64_t c = thread.place(); c < arguments.channels; c += thread.all())
      run_channel(arguments, c);
  }

  template <class Visit>
  static void for_each_pointer(Arguments& arguments, Visit&& visit) {
    const std::size_t bytes = arguments.channels * sizeof(double);
    if (arguments.section != nullptr) {
      --arguments.section;
      visit(arguments.section, (1 + SectionHead::elements) * sizeof(double) + 2 * bytes);
      ++arguments.section;
    }
    for (double** pointer :
         {&arguments.mean, &arguments.rest, &arguments.m2, &arguments.point, &arguments.variance,
          &arguments.record.mean, &arguments.record.rest, &arguments.record.m2,
          &arguments.record.gamma, &arguments.record.point})
      if (*pointer != nullptr) visit(*pointer, bytes);
    if (arguments.record.count != nullptr) visit(arguments.record.count, sizeof(double));
    for (DeviceValues* values :
         {&arguments.gamma, &arguments.beta, &arguments.running_mean, &arguments.running_variance,
          &arguments.gamma_gradient, &arguments.beta_gradient})
      if (values->data != nullptr) visit(values->data, arguments.channels * bytes_of(values->type));
    if (arguments.sums != nullptr) visit(arguments.sums, 2 * bytes);
    if (arguments.lines != nullptr)
      visit(arguments.lines,
            coefficient_count * arguments.channels * (arguments.lines_in_f64 ? 8 : 4));
  }

 private:
  RONDO_HD static void run_channel(const Arguments& arguments, std::uint64_t c) noexcept {
    switch (arguments.task) {
      case ChannelsTask::fill:
        if (arguments.gamma.data != nullptr) write_value(arguments.gamma, c, 1);
        write_value(arguments.running_variance, c, 1);
        return;
      case ChannelsTask::merge:
        return merge(arguments, c);
      case ChannelsTask::merge_forward:
        merge(arguments, c);
        return end_forward(arguments, c);
      case ChannelsTask::forward:
        return end_forward(arguments, c);
      case ChannelsTask::running:
        return keep(arguments, c,
                    {read_value(arguments.running_mean, c), 0,
                     read_value(arguments.running_variance, c), 1});
      case ChannelsTask::backward:
        return end_backward(arguments, c);
    }
  }

  RONDO_HD static void merge(const Arguments& arguments, std::uint64_t c) noexcept {
    const double count = arguments.section[0];
    if (count == 0) return;
    const double* const sums = arguments.section + SectionHead::elements;
    const statistics::Merged all =
        statistics::merged(arguments.point[c], count, sums[c], sums[arguments.channels + c]);
    if (all.far) arguments.section[-1] = 1;
    arguments.mean[c] = all.mean;
    arguments.rest[c] = all.rest;
    arguments.m2[c] = all.m2;
    arguments.point[c] = all.point;
    arguments.variance[c] = all.m2 / count;
  }

  RONDO_HD static void end_forward(const Arguments& arguments, std::uint64_t c) noexcept {
    const double count = arguments.section[0], momentum = arguments.momentum;
    arguments.record.point[c] = arguments.point[c];
    if (count == 0) {
      if (c == 0) *arguments.record.count = 0;
      return;
    }
    const double mean = arguments.mean[c], m2 = arguments.m2[c];
    write_value(
        arguments.running_mean, c,
        statistics::next_running_mean(read_value(arguments.running_mean, c), mean, momentum));
    write_value(arguments.running_variance, c,
                statistics::next_running_variance(read_value(arguments.running_variance, c), m2,
                                                  count, momentum));
    keep(arguments, c, {mean, arguments.rest[c], m2, count});
  }

  // Writes the record, and the coefficients of forward.
  RONDO_HD static void keep(const Arguments& arguments, std::uint64_t c,
                            const ChannelStatistics& of) noexcept {
    const DeviceRecord& record = arguments.record;
    const double gamma = arguments.gamma.data == nullptr ? 1 : read_value(arguments.gamma, c);
    const double beta = arguments.beta.data == nullptr ? 0 : read_value(arguments.beta, c);
    record.mean[c] = of.mean;
    record.rest[c] = of.rest;
    record.m2[c] = of.m2;
    record.gamma[c] = gamma;
    if (c == 0) *record.count = of.count;
    put_lines(arguments, c,
              forward_coefficients(of, gamma, beta, arguments.epsilon, arguments.lines_in_f64));
  }

  RONDO_HD static void end_backward(const Arguments& arguments, std::uint64_t c) noexcept {
    const DeviceRecord& record = arguments.record;
    const ChannelStatistics of{record.mean[c], record.rest[c], record.m2[c], *record.count};
    const double *const own = arguments.sums, epsilon = arguments.epsilon;
    const std::uint64_t channels = arguments.channels;
    // Where no rank has samples, the sums are 0 and there are no statistics.
    put_gradient(arguments, arguments.beta_gradient, c, own[c]);
    put_gradient(arguments, arguments.gamma_gradient, c,
                 of.count > 0 ? gamma_gradient_of(of, own[c], own[channels + c], epsilon) : 0);
    if (arguments.section == nullptr || of.count == 0) return;
    const double* const all = arguments.section + SectionHead::elements;
    put_lines(arguments, c,
              backward_coefficients(of, record.gamma[c], all[c],
                                    gamma_gradient_of(of, all[c], all[channels + c], epsilon),
                                    epsilon, arguments.lines_in_f64));
  }

  RONDO_HD static void put_gradient(const Arguments& arguments, const DeviceValues& to,
                                    std::uint64_t c, double gradient) noexcept {
    if (to.data == nullptr) return;
    write_value(to, c, arguments.add ? read_value(to, c) + gradient : gradient);
  }

  RONDO_HD static void put_lines(const Arguments& arguments, std::uint64_t c,
                                 const ChannelCoefficients& all) noexcept {
    const double values[] = {all.center, all.scale, all.slope, all.shift, all.gradient_center};
    for (unsigned which = 0; which < coefficient_count; ++which) {
      const std::uint64_t at = which * arguments.channels + c;
      if (arguments.lines_in_f64)
        reinterpret_cast<double*>(arguments.lines)[at] = values[which];
      else
        reinterpret_cast<float*>(arguments.lines)[at] = static_cast<float>(values[which]);
    }
  }
};

}  // namespace
}  // namespace rondo::layer
