// SPDX-License-Identifier: Apache-2.0
//
// Turns the sums of a channel into the moments or the gradient sums of this rank, and writes what
// the rank gives to the collective (bn/statistics).
#pragma once

#include <cstddef>
#include <cstdint>

#include "bn/layer/kernels/values.h"
#include "bn/statistics/moments.h"

namespace rondo::layer {
namespace {

struct ChannelFold {
  using Arguments = ChannelArguments;

  // Whether the task uses the sums of a channel.
  RONDO_HD static bool sums_needed(const Arguments& arguments, std::uint64_t channel) noexcept {
    if (arguments.count == 0 || arguments.task == ChannelTask::nothing) return false;
    return arguments.task != ChannelTask::moments_again || arguments.far(channel) != 0;
  }

  RONDO_HD static void run(const Arguments& arguments, std::uint64_t c, double first,
                           double second) noexcept {
    if (arguments.task == ChannelTask::gradients)
      put_gradients(arguments, c, first, second);
    else
      put_moments(arguments, c, first, second);
  }

  // The history is the point that the pass before has left; in backward, that its forward pass has
  // left. Its hash is the sum of these, so their order does not matter. Products of 32 bits: the
  // processor computes several at once.
  RONDO_HD static std::uint64_t history_term(const Arguments& arguments, std::uint64_t c) noexcept {
    const auto bits = __builtin_bit_cast(std::uint64_t, arguments.task == ChannelTask::gradients
                                                            ? arguments.at(recorded_point, c)
                                                            : arguments.at(point_at, c));
    const auto odd = static_cast<std::uint32_t>(2 * c + 1);
    return (bits & 0xffffffffu) * (odd * 0x9e3779b1u) + (bits >> 32) * (odd * 0x85ebca77u);
  }

  RONDO_HD static void put_head(const Arguments& arguments, std::uint64_t history) noexcept {
    *arguments.section.far_word = 0;
    arguments.section.data[0] = arguments.count;
    put_number(arguments, 0, arguments.head.place);
    put_number(arguments, 1, arguments.head.layer);
    put_number(arguments, 2, history);
  }

 private:
  // A point that is so many times farther from 0 than the elements leaves few digits of their mean.
  static constexpr double useless = 0x1p24;

  // As put_agreement() of rondo/agreement.h.
  RONDO_HD static void put_number(const Arguments& arguments, std::size_t which,
                                  std::uint64_t number) noexcept {
    double* const to = arguments.section.data + 1 + which * SectionHead::agreement;
    for (std::size_t i = 0; i < SectionHead::agreement / 2; ++i) {
      const std::uint64_t part = number >> (16 * i) & 0xffffu;
      to[2 * i] = static_cast<double>(part);
      to[2 * i + 1] = static_cast<double>(part * part);
    }
  }

  RONDO_HD static void put_terms(const Arguments& arguments, std::uint64_t c, double first,
                                 double second) noexcept {
    double* const to = arguments.section.data + SectionHead::elements;
    to[c] = first;
    to[arguments.channels + c] = second;
  }

  // Elements have 16 bits: a few are added in f32, and a center is a number of f32.
  RONDO_HD static bool in_f32(const Arguments& arguments) noexcept {
    return bytes_of(arguments.type) == 2;
  }
  RONDO_HD static double center_of(const Arguments& arguments, double value) noexcept {
    return in_f32(arguments) ? static_cast<double>(static_cast<float>(value)) : value;
  }

  RONDO_HD static void put_gradients(const Arguments& arguments, std::uint64_t c, double first,
                                     double second) noexcept {
    const double mean = arguments.at(recorded_mean, c);
    second += (center_of(arguments, mean) - mean) * first;
    if (arguments.count == 0) first = second = 0;  // where the mean is NaN
    arguments.at(sums_at, c) = first;
    arguments.at(sums_at, arguments.channels + c) = second;
    if (arguments.section.data != nullptr) put_terms(arguments, c, first, second);
  }

  RONDO_HD static void put_moments(const Arguments& arguments, std::uint64_t c, double first,
                                   double second) noexcept {
    const double K = arguments.at(point_at, c);
    double &center = arguments.at(center_at, c), &offset = arguments.at(offset_at, c),
           &m2 = arguments.at(own_m2_at, c);
    if (sums_needed(arguments, c)) {
      const double about =
          arguments.task == ChannelTask::moments ? center_of(arguments, K) : center;
      const statistics::LocalChannel local =
          statistics::moments_about(about, arguments.count, first, second, in_f32(arguments));
      const bool again = local.far && !arguments.last;
      offset = local.offset;
      m2 = local.m2;
      arguments.far(c) = again ? 1 : 0;
      center = again ? next_center(arguments, c, about, local) : about;
    }
    if (arguments.section.data == nullptr) return;
    const statistics::Terms terms = statistics::terms_about(K, arguments.count, center, offset, m2);
    put_terms(arguments, c, terms.first, terms.second);
  }

  // The point about which the sums are taken again: the mean that they gave. If they were about a
  // point that tells nothing of the mean, or squares overflowed: the channel's first element.
  RONDO_HD static double next_center(const Arguments& arguments, std::uint64_t c, double about,
                                     const statistics::LocalChannel& local) noexcept {
    using statistics::magnitude_of;
    const double mean = about + local.offset;
    const double first = AnyValues::read({const_cast<std::byte*>(arguments.x), arguments.type},
                                         c * arguments.stride);
    const bool told = statistics::is_finite(mean) && statistics::is_finite(local.m2) &&
                      (magnitude_of(about) <= useless * magnitude_of(mean) ||
                       magnitude_of(about) <= useless * magnitude_of(first));
    return center_of(arguments, told ? mean : first);
  }
};

}  // namespace
}  // namespace rondo::layer
