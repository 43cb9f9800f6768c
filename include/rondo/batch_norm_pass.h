// SPDX-License-Identifier: Apache-2.0
//
// A forward pass of batch norm as an object, for programs in which several forward passes of one
// layer wait for their backward passes, such as bindings of a framework with a graph.
#pragma once

#include <memory>

#include <rondo/export.h>
#include <rondo/types.h>

namespace rondo {

namespace layer {
class PassPool;
struct PassRecord;
}  // namespace layer

// One forward pass, for its backward passes: mean and variance, gamma as it was, a hash of x, the
// shape, and the number of the pass. x itself stays with the caller. SyncBatchNorm::forward() and
// end_forward() return it. It may be used for several backward passes, or for none.
//
// It holds five arrays of [channels] f64, which go back to the layer: once a layer has made as many
// passes as are alive at a time, it allocates no more. A pass may outlive its layer and its
// communicator; then it can only be destroyed. Reentrant; the destructor is thread-safe, so any
// thread may drop a pass while the layer is in use.
class RONDO_API BatchNormPass {
 public:
  BatchNormPass() noexcept;  // empty
  BatchNormPass(std::shared_ptr<layer::PassPool> pool,
                std::unique_ptr<layer::PassRecord> record) noexcept;
  BatchNormPass(BatchNormPass&& other) noexcept;
  BatchNormPass& operator=(BatchNormPass&& other) noexcept;
  ~BatchNormPass();

  explicit operator bool() const noexcept { return record_ != nullptr; }

  // For the library.
  const layer::PassRecord* record() const noexcept { return record_.get(); }
  const layer::PassPool* pool() const noexcept { return pool_.get(); }

 private:
  std::shared_ptr<layer::PassPool> pool_;  // shared: passes and their layer end in any order
  std::unique_ptr<layer::PassRecord> record_;
};

// Where one backward pass puts the gradients of gamma and beta, which are those of this rank's
// samples alone: [channels] f64, f32, f16 or bf16 where the layer computes. Count 0: not wanted.
struct BatchNormGradients {
  Buffer gamma{};
  Buffer beta{};
  bool add = false;  // to what is there; else they are written over it
};

}  // namespace rondo
