// SPDX-License-Identifier: Apache-2.0
//
// Chooses the launch of a reduction: the name of the kernel, its arguments and its grid. The names
// are those of device_image() (image.h). Thread-safe; nothing here fails or calls CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/kernels/device/arguments.h"
#include "device/phases.h"

namespace rondo::kernels {

// How a call reduces.
struct DeviceReduction {
  DType type;
  ReduceOp op;  // supports(type, op)
  double scale = 1;
  std::size_t ranks = 1;  // a mean is divided by it
  // Rounds after every source, so the bits are those of ranks that pass their sums on in this order
  // (collectives/kernels/pair.h). `reproducible` needs it. Otherwise the result is rounded once.
  bool in_steps = false;
};

// "rondo_reduce_f32" and so on. Null for a value outside the enum.
const char* reduce_kernel(DType type) noexcept;

// The arguments of that kernel for a whole reduction: `in` has every rank's input, in rank order.
// input_scales: what each input is multiplied by; empty: 1. If one is not 1, the type is a float
// and the op sum or mean. At least one and at most ReduceArguments::most addresses in `in` and in
// `out`.
ReduceArguments reduce_arguments(const DeviceReduction& reduction,
                                 std::span<const std::byte* const> in,
                                 std::span<const double> input_scales,
                                 std::span<std::byte* const> out, std::uint64_t count) noexcept;

// Copies bytes to several places, with the kernel of u8, which keeps every bit of any type.
inline const char* copy_kernel() noexcept {
  return reduce_kernel(DType::u8);
}
ReduceArguments copy_arguments(const std::byte* in, std::span<std::byte* const> out,
                               std::uint64_t bytes) noexcept;

// The grid of a launch, of one dimension.
struct DeviceGrid {
  unsigned blocks, threads;
};
// A thread for each 16 bytes of a buffer, but no more than fit on the GPU at once: then threads
// take several packs. most_blocks: of the GPU's multiprocessors, times blocks_per_multiprocessor;
// less leaves room for the program's own kernels.
inline constexpr unsigned blocks_per_multiprocessor = 4;
DeviceGrid grid_of(std::uint64_t bytes, unsigned most_blocks) noexcept;

}  // namespace rondo::kernels
