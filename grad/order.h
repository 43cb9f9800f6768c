// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "grad/collecting.h"
#include "grad/setup.h"

namespace rondo::grad {

// Learns in which order gradients become ready, once, and reorders the buckets accordingly. Rank 0
// sends the order that it saw; the next step starts buckets in that order. Gradients do not move.
//
// Threads: the step thread (see Setup). Locks: agree() takes the collector's, once.
// Failure: agree() throws what a collective throws, and Error(corrupt) when rank 0 sends something
// that is not an order. The layout does not change then.
class OrderLearner {
 public:
  explicit OrderLearner(const Setup& setup)
      : wanted_(setup.options.rebuild && setup.parameters.size() > 1) {}

  // Collective, at the end of a step; does nothing once rank 0 has sent an order.
  void agree(const Setup& setup, const Collector& collector);
  // Between steps: applies a new order to the layout.
  void rebuild(Setup& setup);
  std::uint64_t layout_number() const noexcept { return layout_number_; }

 private:
  bool wanted_;                          // rank 0 has not sent an order yet
  std::vector<std::size_t> next_order_;  // empty: the layout stays
  std::uint64_t layout_number_ = 0;
};

}  // namespace rondo::grad
