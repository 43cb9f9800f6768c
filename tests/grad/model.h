// SPDX-License-Identifier: Apache-2.0
//
// A model whose gradients are drawn, and a check of their averages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <rondo/gradients.h>

namespace rondo::testing {

struct Tensor {
  std::size_t count;
  DType type = DType::f32;
};

class Model {
 public:
  explicit Model(const std::vector<Tensor>& tensors);
  // A few tensors of every type that gradients have, one of them empty.
  static Model mixed();
  static Model of(std::initializer_list<std::size_t> counts, DType type = DType::f32);

  const std::vector<Parameter>& parameters() const noexcept { return parameters_; }
  std::size_t size() const noexcept { return parameters_.size(); }
  std::size_t count(std::size_t parameter) const;
  // The gradient of this rank's backward pass: between -1 and 1, exact in every type.
  double value(std::size_t step, int rank, std::size_t parameter, std::size_t element) const;
  // Writes it, multiplied by `times`.
  void write(Buffer view, std::size_t step, int rank, std::size_t parameter,
             double times = 1) const;

 private:
  std::vector<Parameter> parameters_;
};

double element_of(const Buffer& buffer, std::size_t index);
void set_element(const Buffer& buffer, std::size_t index, double value);
std::vector<std::byte> bytes_of(const Buffer& buffer);
std::vector<std::vector<std::byte>> all_bytes(const GradientBuckets& buckets);

// begin_step, gradients of the model in reverse order, finish.
void run_step(GradientBuckets& buckets, const Model& model, std::size_t step, int rank,
              const StepOptions& options = {});

// Throws std::runtime_error unless each gradient is sum(weights[rank] * value) * factor, within the
// precision of its type.
void expect_gradients(const GradientBuckets& buckets, const Model& model, std::size_t step,
                      std::span<const double> weights, double factor);

// Returns the text of the rondo::Error that the function throws, which must have this code; "no
// error" if it throws nothing.
std::string error_of(Errc code, const std::function<void()>& function);
void expect_contains(const std::string& text, std::string_view part);

}  // namespace rondo::testing
