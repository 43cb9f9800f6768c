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

// Product of the shape. Throws Error(invalid_argument), naming the parameter, when it does not fit
// 64 bits.
RONDO_API std::size_t element_count(const Parameter& parameter);

// Whether all ranks have the same list: names, shapes, types, in the same order. Collective.
// Compares 64-bit hashes; only when they differ are lists exchanged, and every rank gets
// Error(mismatch) that names the first parameter that differs and the ranks: "parameter 'fc.weight'
// is f32 [10, 64] on ranks 0, 1, 3, but f32 [10, 32] on rank 2".
RONDO_API void check_parameters(Communicator& communicator, std::span<const Parameter> parameters);

// Copies root's values to all ranks, after check_parameters. Collective. Throws Error.
RONDO_API void broadcast_parameters(Communicator& communicator,
                                    std::span<const Parameter> parameters, int root = 0);

}  // namespace rondo
