// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include <rondo/communicator.h>

namespace rondo {

// Lets ranks with different numbers of batches train together: a rank that has run out keeps the others company until all have.
//
//   UnevenInputs inputs(communicator);
//   while (inputs.next(has_batch())) step(has_batch() ? next_batch() : empty_batch());
//
// Every operation of a step, batch norm included, takes part: the rank runs the same code with a batch of no samples and weight 0
// (GradientBuckets::begin_step). A program whose model cannot run on no samples registers what to do instead, in the order in which a step
// does it, and calls shadow_step().
class RONDO_API UnevenInputs {
 public:
  explicit UnevenInputs(Communicator& communicator) noexcept : communicator_(&communicator) {}

  // Collective, once before each step: whether any rank still has a batch. One message of 16 bytes in the urgent lane. Once a rank has said
  // no, saying yes again is Error(invalid_argument) on that rank.
  bool next(bool have);
  int active() const noexcept { return active_; }  // ranks that said yes to the last next()

  void add_shadow(std::function<void()> operation) { shadows_.push_back(std::move(operation)); }
  void shadow_step() const;

 private:
  Communicator* communicator_;
  int active_ = 0;
  bool ended_ = false;
  std::vector<std::function<void()>> shadows_;
};

}  // namespace rondo
