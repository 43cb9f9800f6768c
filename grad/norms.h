// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include <rondo/types.h>

#include "grad/setup.h"

namespace rondo::grad {

// The sum of squares of one parameter's gradient, in f64. Element i is added to partial sum i % 8,
// in rising order, and the partial sums are added as ((0+4)+(2+6)) + ((1+5)+(3+7)). So the bits
// depend on the elements alone: not on the parts in which they come, the rank or the processor.
// Nothing is allocated. Reentrant.
class SquareSum {
 public:
  // Adds elements [first, first + count) of the parameter: f64, f32, f16 or bf16, aligned as such.
  // Parts come in rising order and without gaps; first == 0 begins anew. Throws
  // Error(invalid_argument) otherwise.
  void add(const void* piece, DType type, std::size_t first, std::size_t count);
  double total() const noexcept;
  std::size_t elements() const noexcept { return elements_; }  // seen so far

 private:
  static constexpr std::size_t partial_sums = 8;
  template <class T>
  void add_values(const T* values, std::size_t count) noexcept;

  std::array<double, partial_sums> sums_{};
  std::size_t elements_ = 0;
};

// The norms of the gradients of one step, added up while buckets arrive and are in the cache.
//
// Threads: the step thread (see Setup). Locks: none.
// Failure: without GradientOptions::norms count() and the norms throw Error(invalid_argument).
class GradientNorms {
 public:
  explicit GradientNorms(const Setup& setup)
      : setup_(setup), squares_(setup.options.norms ? setup.parameters.size() : 0) {}

  void begin_step();
  // A part that has just arrived. Squares are added in the order of addresses: a part that comes
  // too early waits for add_rest().
  void add(std::size_t parameter, const GradientPiece& piece);
  void add_rest(std::size_t parameter);  // call it after the last part
  // A gradient outside of the buckets.
  void count(const Buffer& gradient);

  double norm() const;
  double norm(std::size_t parameter) const;

 private:
  void check_wanted(std::string_view call) const;

  const Setup& setup_;
  std::vector<SquareSum> squares_;  // by parameter
  double other_squares_ = 0;        // of gradients that are not in buckets
};

}  // namespace rondo::grad
