// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include <rondo/gradients.h>

namespace rondo::testing {

using Bytes = std::vector<std::byte>;

// A tensor of a model.
struct Tensor {
  std::size_t count;
  DType type = DType::f32;
};

inline std::vector<Parameter> parameters_of(std::span<const Tensor> tensors, int device) {
  std::vector<Parameter> parameters;
  for (const Tensor& tensor : tensors) {
    Parameter& parameter = parameters.emplace_back();
    parameter.name = "p";
    parameter.name += std::to_string(parameters.size() - 1);
    parameter.shape = {tensor.count};
    parameter.type = tensor.type;
    parameter.device = device;
  }
  return parameters;
}

}  // namespace rondo::testing
