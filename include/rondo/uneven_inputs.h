// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <rondo/communicator.h>

namespace rondo {

// Lets ranks with different numbers of batches train together: a rank that has run out keeps the
// others company until all have.
//
//   UnevenInputs inputs(communicator);
//   while (inputs.next(has_batch())) step(has_batch() ? next_batch() : empty_batch());
//
// Every operation of a step, batch norm included, takes part: the rank runs the same code with a
// batch of no samples and weight 0 (GradientBuckets::begin_step). A program whose model cannot run
// on no samples registers what to do instead, in the order in which a step does it, and calls
// shadow_step().
class RONDO_API UnevenInputs {
 public:
  explicit UnevenInputs(Communicator& communicator) noexcept : communicator_(&communicator) {}

  // Collective, once before each step: whether any rank still has a batch; the same answer on every
  // rank. One message of 24 bytes in the urgent lane. Throws Error on every rank: (mismatch),
  // naming ranks that have called next() another number of times, or that have a batch again after
  // they had none. Error(invalid_argument) after it has answered no: an epoch has its own
  // UnevenInputs.
  bool next(bool have);
  int active() const noexcept { return active_; }  // ranks that said yes to the last next()

  // Wrong: registering another order than that of the step: the others' operations then meet
  // different ones, which is Error(mismatch).
  void add_shadow(std::function<void()> operation) { shadows_.push_back(std::move(operation)); }
  void shadow_step() const;

 private:
  Communicator* communicator_;
  std::uint64_t calls_ = 0;
  int active_ = 0;
  bool said_no_ = false, ended_ = false;
  std::vector<std::function<void()>> shadows_;
};

}  // namespace rondo
