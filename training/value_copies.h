// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>

#include <rondo/parameters.h>

#include "device/gpus.h"
#include "device/objects.h"
#include "training/parameter_check.h"

namespace rondo::training {

// Copies values of parameters between GPUs and pinned host memory, in each GPU's legacy default
// stream. Thread-bound. Failure: throws Error(system) where a GPU refuses, what Gpus throws, and
// what await_gpu() throws.
class ValueCopies {
 public:
  explicit ValueCopies(const Communicator& communicator) noexcept : communicator_(communicator) {}

  // Finds the problem with a parameter that is on a GPU; none if its values can be copied.
  std::optional<OwnProblem> problem_of(const Parameter& parameter);

  device::PinnedMemory pinned(int device, std::size_t bytes);
  void to_host(std::byte* to, const Parameter& parameter, std::size_t bytes);
  void to_gpu(const Parameter& parameter, const std::byte* from, std::size_t bytes);
  // Waits for the copies on this GPU, at most for the communicator's deadline.
  void wait(int device);
  // After a failure: the same for half a second. False: copies are under way. A GPU that has failed
  // runs none.
  bool settle(int device) noexcept;

 private:
  const Communicator& communicator_;
  device::Gpus gpus_;
};

}  // namespace rondo::training
