// SPDX-License-Identifier: Apache-2.0
//
// The arguments of the computation for each channel, between the passes over activations and the
// collective. The processor and GPUs run the same source (fold.h, channels.h). compute.cc fills
// them in. Parameters and statistics need no alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rondo/types.h>

#include "base/host_device.h"
#include "bn/layer/kernels/coefficients.h"

namespace rondo::layer {

// The arrays of a layer, each [channels] of f64, one behind the other.
enum Array : unsigned {
  mean_at,  // of all ranks: the mean is mean + rest
  rest_at,
  m2_at,
  variance_at,
  point_at,   // K of the next sums
  center_at,  // of this rank: the mean is center + offset
  offset_at,
  own_m2_at,
  far_at,                                 // std::uint32_t: sum again, about the center
  sums_at,                                // of this rank, in backward: first, second
  lines_at = sums_at + 2,                 // the coefficients of a pass, in its type
  own_at = lines_at + coefficient_count,  // parameters and statistics that the layer owns
  array_count = own_at + 4
};

// The arrays that a backward pass needs of its forward pass, and behind them the count of all
// ranks; 0: there are no statistics.
enum RecordArray : unsigned {
  recorded_mean,
  recorded_rest,
  recorded_m2,
  recorded_gamma,
  recorded_point,
  record_count
};
constexpr std::size_t record_elements(std::size_t channels) noexcept {
  return record_count * channels + 1;
}

enum class ChannelTask : std::uint32_t {
  // fold.h
  moments,        // of this rank, about the point
  moments_again,  // about the center, for the channels that are far
  nothing,        // uses no new sums: the moments that are there, about another point
  gradients,      // sums of dy and dy * (x - mean)
  // channels.h
  fill,           // gamma and the running variance become 1
  merge,          // takes the moments of all ranks from the section
  forward,        // ends a forward pass: record, running statistics, coefficients
  merge_forward,  // both
  running,        // a record of the running statistics, and coefficients
  backward,       // gradients, and the coefficients of dx
};

// The head of a section. See bn/statistics/exchange.h.
struct SectionHead {
  static constexpr std::size_t agreement = 8;  // agreement_elements of rondo/agreement.h
  static constexpr std::size_t elements = 1 + 3 * agreement;
  std::uint64_t place, layer;
};

// A rank's part in a collective, and afterwards the sums over all ranks.
struct Section {
  double* data = nullptr;      // null: there is no collective, and in backward no dx
  double* far_word = nullptr;  // becomes 1 if K was too far from the mean in some channel
};

// Parameters, statistics and gradients, which the caller may have bound: [channels] of f64, f32,
// f16 or bf16 at any address. Null: there are none.
struct Values {
  std::byte* data;
  DType type;
};

struct ChannelArguments {
  ChannelTask task;
  DType type;  // of activations
  std::uint64_t channels;
  double epsilon;
  double* arrays;
  double* record;  // null: the task uses none
  Section section;
  // fold.h
  double count;  // elements of a channel on this rank
  bool last;     // no more sums of these elements follow
  SectionHead head;
  const std::byte* x;  // elements 0, stride, 2 * stride ... are of the channels
  std::uint64_t stride;
  const double* partials;  // the sums: parts x {first, second} x channels
  std::uint32_t parts;
  // channels.h
  bool add;  // to the gradients that are there
  double momentum;
  Values gamma, beta, running_mean, running_variance, gamma_gradient, beta_gradient;

  RONDO_HD double& at(Array which, std::uint64_t channel) const noexcept {
    return arrays[which * channels + channel];
  }
  RONDO_HD double& at(RecordArray which, std::uint64_t channel) const noexcept {
    return record[which * channels + channel];
  }
  RONDO_HD double& count_in_record() const noexcept { return record[record_count * channels]; }
  RONDO_HD std::uint32_t& far(std::uint64_t channel) const noexcept {
    return reinterpret_cast<std::uint32_t*>(arrays + far_at * channels)[channel];
  }
};

}  // namespace rondo::layer
