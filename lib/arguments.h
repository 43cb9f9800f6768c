// SPDX-License-Identifier: Apache-2.0
//
// Checks of an operation's arguments, before anything starts. Each throws Error(invalid_argument or
// unsupported) that names rank, operation, what was given and what is possible.
#pragma once

#include <cstddef>
#include <span>

#include <rondo/options.h>
#include <rondo/types.h>

#include "base/traits.h"

namespace rondo::lib {

struct Arguments {
  int rank = 0;
  int size = 1;
  Collective operation = Collective::barrier;
  Buffer in, out;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  const OpOptions* options = nullptr;
  std::span<const std::size_t> counts = {};  // where has_counts()

  const base::Traits& traits() const noexcept { return base::traits_of(operation); }
  // On this rank.
  bool reads_in() const noexcept { return base::holds_some(traits().in, rank == root); }
  bool writes_out() const noexcept { return base::holds_some(traits().out, rank == root); }
};

void check_arguments(const Arguments& arguments);

}  // namespace rondo::lib
