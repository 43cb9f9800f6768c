// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>

#include <rondo/types.h>

namespace rondo::grad {

// The sum of squares of one parameter's gradient, in f64. Element i is added to lane i % 8, in
// rising order, and the lanes are added as
// ((0+4)+(2+6)) + ((1+5)+(3+7)): the bits depend on the elements alone, not on the pieces in which
// they come, the rank or the processor. Nothing is allocated.
class SquareSum {
 public:
  // Elements [first, first + count) of the parameter: f64, f32, f16 or bf16, aligned as such.
  // Pieces come in rising order and without gaps; first
  // == 0 begins anew. Throws Error(invalid_argument) otherwise.
  void add(const void* piece, DType type, std::size_t first, std::size_t count);
  double total() const noexcept;
  std::size_t elements() const noexcept { return elements_; }  // seen so far

 private:
  static constexpr std::size_t lanes = 8;
  template <class T>
  void add_values(const T* values, std::size_t count) noexcept;

  std::array<double, lanes> sums_{};
  std::size_t elements_ = 0;
};

}  // namespace rondo::grad
