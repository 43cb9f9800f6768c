// SPDX-License-Identifier: Apache-2.0
//
// The arguments of batch norm's kernels for GPUs. work.h fills them in. Addresses are those that
// the GPU uses; activations, parameters and statistics need no alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rondo/types.h>

#include "base/host_device.h"
#include "device/phases.h"

namespace rondo::layer {

// How a thread reaches elements. packs: 16 bytes at once, of one channel (runs) or of neighbouring
// channels (rows), at an address that is a multiple of 16. elements: one at an address of an
// element. anywhere: one at any address, byte by byte.
enum class Access : std::uint32_t { packs, elements, anywhere };
inline constexpr std::size_t pack_bytes = 16;

// How a batch lies in memory. runs: the elements of a channel in a sample are contiguous: element
// (n, c, s) at (n * channels + c) * spatial + s. Otherwise it lies in rows, one element of each
// channel: element (row, c) at row * channels + c, with samples * spatial rows.
struct DeviceShape {
  std::uint64_t samples, spatial, channels;
  bool runs;

  RONDO_HD std::uint64_t elements() const noexcept { return samples * spatial * channels; }
};

// sums.h
struct SumArguments {
  const std::byte* x;
  const std::byte* dy;  // gradients only
  const double* center;
  // Null: all channels. Otherwise channels with 0 are left out; their partial sums mean nothing.
  const std::uint32_t* wanted;
  double* partials;  // parts x {first, second} x channels
  DeviceShape shape;
  Access access;
  std::uint32_t parts;  // blocks for each channel or band
  std::uint32_t bands;  // parts * bands blocks; runs: one band for each channel
  std::uint32_t width;  // rows: loads side by side that a band has, a power of 2
};

// maps.h
struct MapArguments {
  const std::byte* x;
  const std::byte* dy;     // backward only
  std::byte* out;          // y or dx; may be one of the inputs
  const std::byte* lines;  // Element::Number: the ChannelCoefficients, each [channels]
  DeviceShape shape;
  Access access;
};

// fold.h
//
// moments: about K. moments_again: about `center`, for the channels that are far. nothing: the
// moments of before, about another K. gradients: sums of dy and dy * (x - mean).
enum class FoldTask : std::uint32_t { moments, moments_again, nothing, gradients };

// The head of a section. See bn/statistics/exchange.h.
struct SectionHead {
  static constexpr std::size_t agreement = 8;  // agreement_elements of rondo/agreement.h
  static constexpr std::size_t elements = 1 + 3 * agreement;
  std::uint64_t place, layer;
};

struct FoldArguments {
  static constexpr unsigned lanes = 16;  // threads that share a channel
  static constexpr unsigned channels_of_block = device::block_threads / lanes;

  FoldTask task;
  std::uint32_t parts;
  std::uint64_t channels;
  double count;  // elements of a channel on this rank
  bool in_f32;   // elements have 16 bits: a center is a number of f32
  const double* partials;
  // moments
  const double* K;
  double *center, *offset, *m2;  // the mean is center + offset
  std::uint32_t* far;            // by channel: sum again
  const std::byte* x;            // elements 0, stride, 2 * stride ... are of the channels
  std::uint64_t stride;
  DType type;
  // gradients
  const double* mean;
  double* sums;  // of this rank: {first, second} x channels
  // The rank's section; null: it gives nothing. The word before it becomes 0: see
  // ChannelsArguments.
  double* section;
  const double* history;  // [channels]: its hash is the third agreement
  SectionHead head;
};

// channels.h
//
// Parameters, statistics and gradients, which the caller may have bound: [channels] of f64, f32,
// f16 or bf16 at any address. Null: there are none.
struct DeviceValues {
  std::byte* data;
  DType type;
};

// The arrays that a backward pass needs of its forward pass. The mean is mean + rest.
struct DeviceRecord {
  double *mean, *rest, *m2, *gamma, *point;  // [channels]
  double* count;                             // of all ranks; 0: there are no statistics
};

enum class ChannelsTask : std::uint32_t {
  fill,           // gamma and the running variance become 1
  merge,          // takes the moments of all ranks from the section
  forward,        // ends a forward pass: record, running statistics, coefficients
  merge_forward,  // both
  running,        // a record of the running statistics, and coefficients
  backward,       // gradients, and the coefficients of dx
};

struct ChannelsArguments {
  ChannelsTask task;
  std::uint64_t channels;
  double epsilon, momentum;
  bool lines_in_f64;
  bool add;  // to the gradients that are there
  // The sums over all ranks, behind a word that becomes 1 if K was too far from the mean in some
  // channel. Null in backward: there is no dx.
  double* section;
  double *mean, *rest, *m2, *point, *variance;  // of all ranks
  DeviceRecord record;
  DeviceValues gamma, beta, running_mean, running_variance, gamma_gradient, beta_gradient;
  const double* sums;  // of this rank, from fold.h
  std::byte* lines;    // the coefficients of maps.h
};

}  // namespace rondo::layer
