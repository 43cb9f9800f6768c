// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <rondo/communicator.h>

namespace rondo {

// Lets ranks with different numbers of batches train together: a rank that has run out of batches
// takes part in the others' steps until all ranks have run out.
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

  // Collective, once before each step. Returns whether any rank still has a batch; the answer is
  // the same on every rank. One all-reduce of 72 bytes in the urgent lane. Throws Error(mismatch)
  // on every rank, which names ranks that have called next() another number of times, or that have
  // a batch although they had none. Throws Error(invalid_argument) once it has returned false: make
  // new UnevenInputs for each epoch.
  bool next(bool have);
  int active() const noexcept { return active_; }  // ranks that had a batch at the last next()

  // Registers an operation of the step. Wrong: another order than that of the step. The other ranks
  // then call different operations, which is Error(mismatch).
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
