// SPDX-License-Identifier: Apache-2.0
//
// Arguments of the kernels for GPUs. launch.h fills them in.
#pragma once

#include <cstddef>
#include <cstdint>

#include <rondo/types.h>

#include "collectives/kernels/finish.h"

namespace rondo::kernels {

// out[k][i] = finish(op(in[0][i], in[1][i], ...)) for each k < outputs and i < count: like
// ReduceFunction of collectives/kernels/reduce.h with several outputs, or like ScaledSum if
// `scaled`. Addresses are those that the GPU uses.
// - Nothing needs alignment. It is fastest where all addresses agree modulo 16.
// - An output may be one of the inputs, but must not overlap one otherwise, nor another output.
struct ReduceArguments {
  static constexpr std::size_t most = 64;  // sources, and outputs

  const std::byte* in[most];
  std::byte* out[most];
  double factors[most];  // of the sources, if `scaled`
  Finish finish;
  std::uint64_t count;             // elements
  std::uint32_t sources, outputs;  // at least 1 each
  ReduceOp op;
  bool scaled;  // op is sum or mean, the type a float
  // Rounds to the type after every source, as ranks that pass sums on do, not only at the end.
  bool in_steps;
};
static_assert(sizeof(ReduceArguments) <= 4096, "what every GPU takes");

}  // namespace rondo::kernels
