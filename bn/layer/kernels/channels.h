// SPDX-License-Identifier: Apache-2.0
//
// The computation for one channel between a collective and a pass over activations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bn/layer/kernels/coefficients.h"
#include "bn/layer/kernels/values.h"
#include "bn/statistics/moments.h"

namespace rondo::layer {
namespace {

// In: ValuesOf<type>, where all values have that type, or AnyValues.
template <class In>
struct Channel {
  using Arguments = ChannelArguments;

  // The elements of a channel over all ranks, an argument of run(): the same for all channels.
  RONDO_HD static Count count_of(const Arguments& arguments) noexcept {
    const double all = arguments.task == ChannelTask::backward ? arguments.count_in_record()
                       : arguments.section.data == nullptr     ? 1
                                                               : arguments.section.data[0];
    return {all, 1 / all};
  }

  RONDO_HD static void run(const Arguments& arguments, std::uint64_t c,
                           const Count& count) noexcept {
    switch (arguments.task) {
      case ChannelTask::fill:
        if (arguments.gamma.data != nullptr) In::write(arguments.gamma, c, 1);
        In::write(arguments.running_variance, c, 1);
        return;
      case ChannelTask::merge:
        return merge(arguments, c, count);
      case ChannelTask::merge_forward:
        merge(arguments, c, count);
        return end_forward(arguments, c, count);
      case ChannelTask::forward:
        return end_forward(arguments, c, count);
      case ChannelTask::running:
        return keep(arguments, c,
                    {In::read(arguments.running_mean, c), 0,
                     In::read(arguments.running_variance, c), count});
      case ChannelTask::backward:
        return end_backward(arguments, c, count);
      default:
        return;  // tasks of fold.h
    }
  }

 private:
  RONDO_HD static void merge(const Arguments& arguments, std::uint64_t c,
                             const Count& count) noexcept {
    if (count.all == 0) return;
    const double* const sums = arguments.section.data + SectionHead::elements;
    const statistics::Merged all = statistics::merged(arguments.at(point_at, c), count.all, sums[c],
                                                      sums[arguments.channels + c]);
    if (all.far) *arguments.section.far_word = 1;
    arguments.at(mean_at, c) = all.mean;
    arguments.at(rest_at, c) = all.rest;
    arguments.at(m2_at, c) = all.m2;
    arguments.at(point_at, c) = all.point;
    arguments.at(variance_at, c) = all.m2 / count.all;
  }

  RONDO_HD static void end_forward(const Arguments& arguments, std::uint64_t c,
                                   const Count& count) noexcept {
    const double momentum = arguments.momentum;
    arguments.at(recorded_point, c) = arguments.at(point_at, c);
    if (count.all == 0) {
      if (c == 0) arguments.count_in_record() = 0;
      return;
    }
    const double mean = arguments.at(mean_at, c), m2 = arguments.at(m2_at, c);
    In::write(arguments.running_mean, c,
              statistics::next_running_mean(In::read(arguments.running_mean, c), mean, momentum));
    In::write(arguments.running_variance, c,
              statistics::next_running_variance(In::read(arguments.running_variance, c), m2,
                                                count.all, momentum));
    keep(arguments, c, {mean, arguments.at(rest_at, c), m2, count});
  }

  // Writes the record, and the coefficients of forward.
  RONDO_HD static void keep(const Arguments& arguments, std::uint64_t c,
                            const ChannelStatistics& of) noexcept {
    const double gamma = arguments.gamma.data == nullptr ? 1 : In::read(arguments.gamma, c);
    const double beta = arguments.beta.data == nullptr ? 0 : In::read(arguments.beta, c);
    arguments.at(recorded_mean, c) = of.mean;
    arguments.at(recorded_rest, c) = of.rest;
    arguments.at(recorded_m2, c) = of.m2;
    arguments.at(recorded_gamma, c) = gamma;
    if (c == 0) arguments.count_in_record() = of.count.all;
    put_lines(arguments, c,
              forward_coefficients(of, gamma, beta, arguments.epsilon, in_f64(arguments)));
  }

  RONDO_HD static void end_backward(const Arguments& arguments, std::uint64_t c,
                                    const Count& count) noexcept {
    const ChannelStatistics of{arguments.at(recorded_mean, c), arguments.at(recorded_rest, c),
                               arguments.at(recorded_m2, c), count};
    const double *const own = &arguments.at(sums_at, 0), epsilon = arguments.epsilon;
    const std::uint64_t channels = arguments.channels;
    // Where no rank has samples, the sums are 0 and there are no statistics.
    put_gradient(arguments, arguments.beta_gradient, c, own[c]);
    put_gradient(arguments, arguments.gamma_gradient, c,
                 count.all > 0 ? gamma_gradient_of(of, own[c], own[channels + c], epsilon) : 0);
    if (arguments.section.data == nullptr || count.all == 0) return;
    const double* const all = arguments.section.data + SectionHead::elements;
    put_lines(arguments, c,
              backward_coefficients(of, arguments.at(recorded_gamma, c), all[c],
                                    gamma_gradient_of(of, all[c], all[channels + c], epsilon),
                                    epsilon, in_f64(arguments)));
  }

  RONDO_HD static void put_gradient(const Arguments& arguments, const Values& to, std::uint64_t c,
                                    double gradient) noexcept {
    if (to.data == nullptr) return;
    In::write(to, c, arguments.add ? In::read(to, c) + gradient : gradient);
  }

  RONDO_HD static bool in_f64(const Arguments& arguments) noexcept {
    return arguments.type == DType::f64;
  }
  RONDO_HD static void put_lines(const Arguments& arguments, std::uint64_t c,
                                 const ChannelCoefficients& all) noexcept {
    double* const lines = &arguments.at(lines_at, 0);
    const double values[] = {all.center, all.scale, all.slope, all.shift, all.gradient_center};
    for (unsigned which = 0; which < coefficient_count; ++which) {
      const std::uint64_t at = which * arguments.channels + c;
      if (in_f64(arguments))
        lines[at] = values[which];
      else
        reinterpret_cast<float*>(lines)[at] = static_cast<float>(values[which]);
    }
  }
};

}  // namespace
}  // namespace rondo::layer
