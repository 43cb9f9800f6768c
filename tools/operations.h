// SPDX-License-Identifier: Apache-2.0
//
// How operations differ for their callers.
#pragma once

#include <rondo/types.h>

namespace rondo::tools {

constexpr bool reduces(Collective operation) noexcept {
  return operation == Collective::all_reduce || operation == Collective::reduce ||
         operation == Collective::reduce_scatter || operation == Collective::reduce_scatter_v;
}
constexpr bool is_rooted(Collective operation) noexcept {
  return operation == Collective::reduce || operation == Collective::broadcast ||
         operation == Collective::gather || operation == Collective::scatter;
}
// The output has a block from each rank, and the input is one block.
constexpr bool gathers(Collective operation) noexcept {
  return operation == Collective::all_gather || operation == Collective::all_gather_v ||
         operation == Collective::gather;
}
// The input has a block for each rank, and the output is one block.
constexpr bool scatters(Collective operation) noexcept {
  return operation == Collective::reduce_scatter || operation == Collective::reduce_scatter_v ||
         operation == Collective::scatter;
}
constexpr bool has_counts(Collective operation) noexcept {
  return operation == Collective::all_gather_v || operation == Collective::reduce_scatter_v;
}
// It is called with the count of one of its blocks.
constexpr bool counts_one_block(Collective operation) noexcept {
  return (gathers(operation) || scatters(operation)) && !has_counts(operation);
}

}  // namespace rondo::tools
