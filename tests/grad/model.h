// SPDX-License-Identifier: Apache-2.0
//
// A model whose gradients are drawn, checks of their averages, and the setup of most tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "grad/tensors.h"
#include "support/ranks.h"

namespace rondo::testing {

class Model {
 public:
  // Gradients are multiples of 1 / steps.
  explicit Model(std::vector<Tensor> tensors, std::uint64_t steps = 64)
      : tensors_(std::move(tensors)), steps_(steps) {}
  // A few tensors of every type that gradients have, one of them empty.
  static Model mixed();
  static Model of(std::initializer_list<std::size_t> counts, DType type = DType::f32);

  std::vector<Parameter> parameters(int device = -1) const {
    return parameters_of(tensors_, device);
  }
  std::size_t size() const noexcept { return tensors_.size(); }
  const Tensor& tensor(std::size_t parameter) const { return tensors_[parameter]; }
  std::size_t count(std::size_t parameter) const { return tensors_[parameter].count; }
  std::size_t bytes(std::size_t parameter) const {
    return count(parameter) * size_of(tensors_[parameter].type);
  }
  // The gradient of this rank's backward pass: between -1 and 1, exact in every type.
  double value(std::size_t step, int rank, std::size_t parameter, std::size_t element) const;
  // Writes it, multiplied by `times`.
  void write(Buffer view, std::size_t step, int rank, std::size_t parameter,
             double times = 1) const;
  Bytes gradient(std::size_t step, int rank, std::size_t parameter) const;
  // Returns a view of bytes as a gradient of this parameter.
  Buffer view(Bytes& bytes, std::size_t parameter) const {
    return {bytes.data(), count(parameter), tensors_[parameter].type};
  }

 private:
  std::vector<Tensor> tensors_;
  std::uint64_t steps_;
};

double element_of(const Buffer& buffer, std::size_t index);
void set_element(const Buffer& buffer, std::size_t index, double value);
void fill(const Buffer& buffer, double value);
Bytes bytes_of(const Buffer& buffer);
std::vector<Bytes> all_bytes(const GradientBuckets& buckets);

Setup ranks(int size = 3, Over over = Over::mem);
// Generates ranks() over mem, tcp and shm: the test case runs three times.
Setup over_each(int size = 3);
// Options with this cap for the first bucket and for the others, in bytes.
GradientOptions small_buckets(std::size_t cap = 64);

// Checks that no rank throws. Each makes buckets of the model in host memory and calls the body.
void run_buckets(const Setup& setup, const Model& model, const GradientOptions& options,
                 const std::function<void(GradientBuckets&, Communicator&, int rank)>& body);
// Checks that no rank throws. Each calls the body.
void run_each(const Setup& setup, const std::function<void(Communicator&, int rank)>& body);

void all_ready(GradientBuckets& buckets);
// begin_step, gradients of the model in reverse order, finish.
void run_step(GradientBuckets& buckets, const Model& model, std::size_t step, int rank,
              const StepOptions& options = {});

// Throws std::runtime_error unless each gradient is sum(weights[rank] * value) * factor, within the
// precision of its type.
void expect_gradients(const GradientBuckets& buckets, const Model& model, std::size_t step,
                      std::span<const double> weights, double factor);
// Calls expect_gradients() for the mean of three ranks.
void expect_means(const GradientBuckets& buckets, const Model& model, std::size_t step);

// Returns the text of the rondo::Error that the function throws, which must have this code; "no
// error" if it throws nothing.
std::string error_of(Errc code, const std::function<void()>& function);
// Like error_of(), but for an Error of any code.
std::string message_of(const std::function<void()>& function);
void expect_contains(const std::string& text, std::string_view part);
// Throws std::runtime_error unless the function throws Error(invalid_argument) with this text.
void expect_refused(const std::function<void()>& function, std::string_view part);

}  // namespace rondo::testing
