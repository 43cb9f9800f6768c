// SPDX-License-Identifier: Apache-2.0
//
// Checks of an operation's arguments, before anything starts. Each throws Error(invalid_argument or
// unsupported) that names rank, operation, what was given and what is possible.
#pragma once

#include <cstddef>
#include <span>

#include <rondo/options.h>
#include <rondo/types.h>

namespace rondo::lib {

struct Arguments {
  int rank = 0;
  int size = 1;
  Collective operation = Collective::barrier;
  Buffer in, out;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  bool reads_in = true, writes_out = true;  // on this rank
  const OpOptions* options = nullptr;
  std::span<const std::size_t> counts = {};  // where has_counts()
};

void check_arguments(const Arguments& arguments);

}  // namespace rondo::lib
