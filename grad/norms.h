// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include <rondo/types.h>

#include "grad/passes.h"
#include "grad/setup.h"

namespace rondo::grad {

// How many blocks of squares (square_order.h) the gradients have, in the order of parameters.
std::size_t all_square_blocks(const Setup& setup);

// The norms of the gradients of one step. Squares are added up while buckets arrive. A block that
// several buckets share waits for the last of them.
//
// Threads: the step thread (see Setup). Locks: none.
// Failure: without GradientOptions::norms the norms throw Error(invalid_argument).
// Norms of gradients on a GPU wait for it, and throw what Passes::squares() throws.
class GradientNorms {
 public:
  explicit GradientNorms(const Setup& setup);

  void begin_step();
  // No rank has given this gradient: it counts 0 in this step.
  void leave_out(std::size_t parameter) { counted_[parameter] = false; }
  // Adds up what a bucket has brought.
  void add(std::size_t bucket);
  void end_step();  // after the last bucket

  double norm() const;
  double norm(std::size_t parameter) const;
  // The gradients that count. Valid until the next call.
  std::span<const ClipRange> counted_ranges();
  void check_wanted(std::string_view call) const;

 private:
  struct Blocks {
    std::size_t first = 0;            // of the blocks of all gradients
    std::vector<std::size_t> shared;  // of this gradient, those that lie in several buckets
  };
  std::vector<std::size_t> shared_blocks(std::size_t parameter) const;
  std::size_t elements(std::size_t parameter) const;
  // Elements [first, end) of a gradient.
  void add(std::size_t parameter, std::size_t first, std::size_t end);

  const Setup& setup_;
  // By parameter; empty without norms.
  std::vector<Blocks> blocks_;
  std::vector<bool> counted_;
  std::vector<SquareRange> ranges_;  // of the bucket that is being added
  std::vector<BlockSums> sums_;      // by parameter
  std::vector<ClipRange> clipped_;
};

}  // namespace rondo::grad
