// SPDX-License-Identifier: Apache-2.0
//
// The computation for each channel between a collective and a pass over activations: what
// bn/merge.cc, bn/lines.cc and bn/values.cc do on the processor, with a thread for each channel.
#pragma once

#include <math.h>

#include <cstddef>
#include <cstdint>

#include "bn/device/fold.h"

namespace rondo::bn {

namespace {

RONDO_HD inline double read_value(const DeviceValues& from, std::uint64_t c) noexcept {
  const std::byte* const at = from.data + c * bytes_of(from.type);
  switch (from.type) {
    case DType::f64:
      return DeviceF64::decode(Loads<DeviceF64, Access::anywhere>::load(at).at[0]);
    case DType::f16:
      return static_cast<double>(
          DeviceF16::decode(Loads<DeviceF16, Access::anywhere>::load(at).at[0]));
    case DType::bf16:
      return static_cast<double>(
          DeviceBF16::decode(Loads<DeviceBF16, Access::anywhere>::load(at).at[0]));
    default:
      return static_cast<double>(
          DeviceF32::decode(Loads<DeviceF32, Access::anywhere>::load(at).at[0]));
  }
}

template <class Element>
RONDO_HD void write_element(std::byte* to, double value) noexcept {
  using L = Loads<Element, Access::anywhere>;
  L::store(to, {{Element::encode(static_cast<typename Element::Number>(value))}});
}

// Rounds to nearest even; for f16 and bf16 first to f32.
RONDO_HD inline void write_value(const DeviceValues& to, std::uint64_t c, double value) noexcept {
  std::byte* const at = to.data + c * bytes_of(to.type);
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

struct Channels {
  using Arguments = ChannelsArguments;
  struct Shared {};
  static constexpr int phases = 1;
  // As in merge.cc.
  static constexpr double far = 256, nearest = 0x1p-48;

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
    for (const double** pointer : {&arguments.center, &arguments.offset, &arguments.own_m2})
      if (*pointer != nullptr) visit(*pointer, bytes);
    if (arguments.record.count != nullptr) visit(arguments.record.count, sizeof(double));
    for (DeviceValues* values :
         {&arguments.gamma, &arguments.beta, &arguments.running_mean, &arguments.running_variance,
          &arguments.gamma_gradient, &arguments.beta_gradient})
      if (values->data != nullptr) visit(values->data, arguments.channels * bytes_of(values->type));
    if (arguments.sums != nullptr) visit(arguments.sums, 2 * bytes);
    if (arguments.global_sums != nullptr) visit(arguments.global_sums, 2 * bytes);
    if (arguments.lines != nullptr)
      visit(arguments.lines, 5 * arguments.channels * (arguments.lines_in_f64 ? 8 : 4));
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
        keep(arguments, c, read_value(arguments.running_mean, c), 0,
             read_value(arguments.running_variance, c), 1);
        return;
      case ChannelsTask::own:
        return keep_own(arguments, c);
      case ChannelsTask::backward:
        return end_backward(arguments, c);
    }
  }

  // See merge.h.
  RONDO_HD static void merge(const Arguments& arguments, std::uint64_t c) noexcept {
    const double count = arguments.section[0];
    if (count == 0) return;
    const double* const sums = arguments.section + SectionHead::elements;
    const double s1 = sums[c], s2 = sums[arguments.channels + c];
    const double K = arguments.point[c], away = s1 / count, squares = count * away * away;
    double m2 = ::fma(-away, s1, s2);
    // NaN and infinity count as near: no round changes them. Squares may overflow if the distance
    // from K does not.
    const bool overflow = squares > 0 && !is_finite(squares) && is_finite(away);
    const bool lost = squares > far * m2 || overflow;
    if (lost && magnitude_of(away) > nearest * magnitude_of(K)) arguments.section[-1] = 1;
    // Knuth's two-sum: mean + rest is exact.
    const double mean = K + away, moved = mean - K;
    if (m2 < 0) m2 = 0;
    arguments.rest[c] = (K - (mean - moved)) + (away - moved);
    arguments.mean[c] = mean;
    arguments.point[c] = is_finite(mean) ? mean : 0;
    arguments.m2[c] = m2;
    arguments.variance[c] = m2 / count;
  }

  RONDO_HD static void end_forward(const Arguments& arguments, std::uint64_t c) noexcept {
    const double count = arguments.section[0];
    arguments.record.point[c] = arguments.point[c];
    if (count == 0) {
      if (c == 0) *arguments.record.count = 0;
      return;
    }
    const double mean = arguments.mean[c], m2 = arguments.m2[c];
    const double keep_part = 1 - arguments.momentum;
    write_value(arguments.running_mean, c,
                keep_part * read_value(arguments.running_mean, c) + arguments.momentum * mean);
    if (count > 1)
      write_value(arguments.running_variance, c,
                  keep_part * read_value(arguments.running_variance, c) +
                      arguments.momentum / (count - 1) * m2);
    keep(arguments, c, mean, arguments.rest[c], m2, count);
  }

  RONDO_HD static void keep_own(const Arguments& arguments, std::uint64_t c) noexcept {
    const double point = arguments.center[c], offset = arguments.offset[c];
    const double mean = point + offset, moved = mean - point;
    keep(arguments, c, mean, (point - (mean - moved)) + (offset - moved), arguments.own_m2[c],
         arguments.count);
  }

  // Writes the record, and the coefficients of forward: see lines.cc.
  RONDO_HD static void keep(const Arguments& arguments, std::uint64_t c, double mean, double rest,
                            double m2, double count) noexcept {
    const DeviceRecord& record = arguments.record;
    const double gamma = arguments.gamma.data == nullptr ? 1 : read_value(arguments.gamma, c);
    const double beta = arguments.beta.data == nullptr ? 0 : read_value(arguments.beta, c);
    record.mean[c] = mean;
    record.rest[c] = rest;
    record.m2[c] = m2;
    record.gamma[c] = gamma;
    if (c == 0) *record.count = count;
    const double factor = gamma * inverse_of(arguments, m2, count);
    const double center = rounded(arguments, mean);
    put_line(arguments, 0, c, center);
    put_line(arguments, 1, c, factor);
    put_line(arguments, 3, c, beta - ((mean - center) + rest) * factor);
  }

  RONDO_HD static void end_backward(const Arguments& arguments, std::uint64_t c) noexcept {
    const DeviceRecord& record = arguments.record;
    const std::uint64_t channels = arguments.channels;
    const double count = *record.count;
    if (arguments.sums != nullptr) {
      if (count > 0) finish_sums(arguments, arguments.sums, arguments.sums, c, count);
      put_gradient(arguments, arguments.beta_gradient, c, arguments.sums[c]);
      put_gradient(arguments, arguments.gamma_gradient, c, arguments.sums[channels + c]);
    }
    const double* gradients = arguments.sums;
    if (arguments.kind == BackwardKind::all && count == 0)
      arguments.global_sums[c] = arguments.global_sums[channels + c] = 0;
    if (count == 0) return;
    if (arguments.kind == BackwardKind::all) {
      finish_sums(arguments, arguments.section + SectionHead::elements, arguments.global_sums, c,
                  count);
      gradients = arguments.global_sums;
    }
    if (arguments.kind == BackwardKind::none) return;
    const double inverse = inverse_of(arguments, record.m2[c], count);
    const double factor = record.gamma[c] * inverse;
    if (arguments.kind == BackwardKind::fixed) return put_line(arguments, 1, c, factor);
    const double part = 1 / count;
    const double along = -factor * inverse * gradients[channels + c] * part;
    const double mean = record.mean[c], center = rounded(arguments, mean);
    const double mean_gradient = gradients[c] * part;
    const double gradient_center = rounded(arguments, mean_gradient);
    put_line(arguments, 0, c, center);
    put_line(arguments, 1, c, factor);
    put_line(arguments, 2, c, along);
    put_line(
        arguments, 3, c,
        -factor * (mean_gradient - gradient_center) - along * ((mean - center) + record.rest[c]));
    put_line(arguments, 4, c, gradient_center);
  }

  RONDO_HD static void finish_sums(const Arguments& arguments, const double* from, double* to,
                                   std::uint64_t c, double count) noexcept {
    const DeviceRecord& record = arguments.record;
    const double sum = from[c], product = from[arguments.channels + c];
    to[c] = sum;
    to[arguments.channels + c] =
        inverse_of(arguments, record.m2[c], count) * (product - record.rest[c] * sum);
  }

  RONDO_HD static void put_gradient(const Arguments& arguments, const DeviceValues& to,
                                    std::uint64_t c, double gradient) noexcept {
    if (to.data == nullptr) return;
    write_value(to, c, arguments.add ? read_value(to, c) + gradient : gradient);
  }

  RONDO_HD static double inverse_of(const Arguments& arguments, double m2, double count) noexcept {
    return 1 / ::sqrt(m2 * (1 / count) + arguments.epsilon);
  }
  // The number in the type of the passes.
  RONDO_HD static double rounded(const Arguments& arguments, double value) noexcept {
    return arguments.lines_in_f64 ? value : static_cast<double>(static_cast<float>(value));
  }
  RONDO_HD static void put_line(const Arguments& arguments, std::uint64_t which, std::uint64_t c,
                                double value) noexcept {
    const std::uint64_t at = which * arguments.channels + c;
    if (arguments.lines_in_f64)
      reinterpret_cast<double*>(arguments.lines)[at] = value;
    else
      reinterpret_cast<float*>(arguments.lines)[at] = static_cast<float>(value);
  }
};

}  // namespace
}  // namespace rondo::bn
