// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <rondo/communicator.h>

namespace rondo {

// A tensor of a model: a parameter, or a buffer such as a running mean.
struct Parameter {
  std::string name;                // unique within the model
  std::vector<std::size_t> shape;  // empty: one element
  DType type = DType::f32;
  int device = -1;        // as Buffer::device
  void* value = nullptr;  // its elements, for broadcast_parameters; may be null elsewhere
};

// Returns the product of the shape. Throws Error(invalid_argument), which names the parameter, if
// it does not fit in 64 bits.
RONDO_API std::size_t element_count(const Parameter& parameter);

// Checks that all ranks have the same list: names, shapes and types, in the same order. Collective.
// Compares 64-bit hashes, and exchanges lists only if they differ. Then every rank throws
// Error(mismatch), which names the first parameter that differs and the ranks: "parameter
// 'fc.weight' is f32 [10, 64] on ranks 0, 1, 3, but f32 [10, 32] on rank 2".
RONDO_API void check_parameters(Communicator& communicator, std::span<const Parameter> parameters);

// Copies root's values to all ranks, after check_parameters. Collective. Throws Error. A parameter
// is on a GPU on all ranks, or in host memory on all; values on a GPU are complete when its legacy
// default stream has reached the call, and arrive before it returns. Waits for a GPU end at the
// communicator's deadline.
RONDO_API void broadcast_parameters(Communicator& communicator,
                                    std::span<const Parameter> parameters, int root = 0);

}  // namespace rondo
