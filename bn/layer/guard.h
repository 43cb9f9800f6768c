// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <rondo/batch_norm.h>

#include "bn/layer/compute.h"

namespace rondo::layer {

// Refuses wrong calls before anything has changed: each function throws Error(invalid_argument)
// with the rank and the layer. Thread-bound.
class Guard {
 public:
  Guard(const Model& model, const Compute& compute) noexcept : model_(model), compute_(compute) {}

  [[noreturn]] void refuse(const std::string& why) const;
  void communicator() const;  // it has been destroyed
  // Activations are called `what` in messages.
  void input(const Activations& x, const char* what) const;
  void output(const Activations& in, const Activations& out, const char* what) const;
  void backward(const PassRecord& pass, const Activations& x, const Activations& dy) const;
  void gradients(const BatchNormGradients& gradients) const;
  // Memory that the layer is to use for each channel. exists: the layer has the parameter.
  void bound(const char* what, const Buffer& buffer, bool exists) const;

 private:
  // The shape that activations must have. whose: the words for it in a refusal, "the input has".
  struct Shape {
    std::size_t samples, spatial;
    TensorLayout layout;
    const char* whose;
  };
  void alike(const Activations& given, const char* what, const Shape& wanted) const;
  void memory(const void* data, std::size_t bytes, const char* what) const;

  const Model& model_;
  const Compute& compute_;
};

}  // namespace rondo::layer
