// SPDX-License-Identifier: Apache-2.0
//
// The arguments of the kernels for GPUs that pass over activations; for those of the others see
// kernels/arguments.h. Addresses are those that the GPU uses; activations need no alignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rondo/types.h>

#include "bn/layer/kernels/arguments.h"
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

// Threads of fold.h that share a channel, and channels of a block.
inline constexpr unsigned fold_lanes = 16;
inline constexpr unsigned fold_channels = device::block_threads / fold_lanes;

}  // namespace rondo::layer
