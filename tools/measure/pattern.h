// SPDX-License-Identifier: Apache-2.0
//
// Inputs whose results are known to the last bit, and the check of a result against them.
#pragma once

#include <rondo/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tools/measure/operation.h"

namespace rondo::tools {

inline std::byte* bytes_of(const Buffer& buffer) noexcept {
  return static_cast<std::byte*>(buffer.data);
}

// A call; the same in every iteration of a measurement.
struct Call {
  Operation operation = Collective::all_reduce;
  DType type = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  int rank = 0;
  int size = 1;
};

// Element i of rank r in iteration k is table[r][(i + shift(k)) mod period]. The period is a prime
// number, so data from a wrong place, a wrong rank or the iteration before differs. The tables hold
// small integers (sum, mean, min, max) or powers of two (product), chosen so that no partial result
// in any order needs rounding in the type. Integer types use all their bits where the operation
// wraps, and in means, where it must not. So the expected table is exact, and fill and check run at
// the speed of memcpy and memcmp.
class Pattern {
 public:
  explicit Pattern(const Call& call);

  // Writes this rank's input. `first` is the index of the first element.
  void fill_input(std::byte* to, std::size_t first, std::size_t count,
                  std::uint64_t iteration) const;
  // Writes values of which every byte differs from the result that belongs there. Where an output
  // has several blocks (all_gather, gather, all_to_all), `block` is the rank that this one comes
  // from. For messages it is the sender. It is 0 for other operations.
  void poison(std::byte* to, std::size_t first, std::size_t count, std::uint64_t iteration,
              int block) const;
  // Counts the elements that are not exactly the expected result.
  std::uint64_t count_wrong(const std::byte* at, std::size_t first, std::size_t count,
                            std::uint64_t iteration, int block) const;

 private:
  std::size_t phase(std::size_t first, std::uint64_t iteration) const;
  void copy(std::byte* to, const std::vector<std::byte>& table, std::size_t first,
            std::size_t count, std::uint64_t iteration) const;

  Call call_;
  std::size_t width_;   // bytes of an element
  std::size_t period_;  // elements
  std::vector<std::byte> input_;
  std::vector<std::vector<std::byte>> expected_, poison_;  // by block
};

// The bits of `value` in a floating-point type, rounded once to nearest even. The value must be
// finite and not overflow.
std::uint64_t encode_float(DType type, double value);

// Every integer from 0 to this is a value of the type.
std::uint64_t largest_exact_integer(DType type);

}  // namespace rondo::tools
