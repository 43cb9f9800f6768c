// SPDX-License-Identifier: Apache-2.0
//
// Computes counts of elements from the arguments of a call, and refuses invalid arguments.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "python/torch/element.h"
#include "python/torch/flat.h"

namespace rondo::python {

// Returns a timeout as Rondo takes it, a year at most. torch makes a negative number of a timedelta
// that is too long for its clock, such as timedelta.max.
inline std::chrono::milliseconds limited(std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds longest = std::chrono::hours{24 * 365};
  if (timeout.count() < 0) return longest;
  return std::clamp(timeout, std::chrono::milliseconds{1}, longest);
}

inline std::size_t size_cast(std::int64_t number) {
  return static_cast<std::size_t>(number);
}

// Elements of one row, also of a tensor without rows.
inline std::size_t row_elements(const at::Tensor& tensor) {
  std::size_t count = size_cast(tensor.element_size()) / size_of(moved_type(tensor));
  for (std::int64_t i = 1; i < tensor.dim(); ++i) count *= size_cast(tensor.size(i));
  return count;
}

inline void check_block(const at::Tensor& whole, const at::Tensor& block) {
  check_tensor(block);
  TORCH_CHECK_VALUE(block.numel() == whole.numel() && block.scalar_type() == whole.scalar_type(),
                    "rondo: a tensor of ", block.numel(), " ", c10::toString(block.scalar_type()),
                    " stands where ", whole.numel(), " ", c10::toString(whole.scalar_type()),
                    " are needed");
}

// Each large tensor has the elements of `size` small ones.
inline void check_pairs(const Tensors& large, const Tensors& small, int size, const char* name,
                        const char* large_name, const char* small_name) {
  TORCH_CHECK_VALUE(large.size() == small.size(), "rondo: ", name,
                    " needs as many inputs as outputs");
  for (std::size_t i = 0; i < large.size(); ++i) {
    check_tensor(large[i]);
    check_tensor(small[i]);
    TORCH_CHECK_VALUE(large[i].numel() == small[i].numel() * size &&
                          large[i].scalar_type() == small[i].scalar_type(),
                      "rondo: the ", large_name, " tensor of ", name, " must have ", size,
                      " times the elements of the ", small_name, " tensor, and its type; it has ",
                      large[i].numel(), " ", c10::toString(large[i].scalar_type()), ", the other ",
                      small[i].numel(), " ", c10::toString(small[i].scalar_type()));
  }
}

// Elements for each rank, from rows for each rank. No splits: the rows are divided evenly.
inline std::vector<std::size_t> split_counts(const at::Tensor& tensor,
                                             const std::vector<std::int64_t>& splits, int size,
                                             const char* name) {
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  const std::size_t row = row_elements(tensor);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % size == 0, "rondo: the ", name, " of all_to_all has ", rows,
                      " rows, which ", size, " ranks cannot share evenly: give split sizes");
    return std::vector<std::size_t>(size_cast(size), size_cast(rows / size) * row);
  }
  TORCH_CHECK_VALUE(splits.size() == size_cast(size), "rondo: all_to_all needs ", size, " ", name,
                    " split sizes and got ", splits.size());
  std::vector<std::size_t> counts;
  std::int64_t sum = 0;
  for (const std::int64_t split : splits) {
    TORCH_CHECK_VALUE(split >= 0, "rondo: a split size of all_to_all is ", split);
    counts.push_back(size_cast(split) * row);
    sum += split;
  }
  TORCH_CHECK_VALUE(sum == rows, "rondo: the ", name, " split sizes of all_to_all sum to ", sum,
                    ", but the tensor has ", rows, " rows");
  return counts;
}

inline void check_tag(int tag) {
  TORCH_CHECK_VALUE(tag >= 0, "rondo: the tag ", tag, " is negative");
}

}  // namespace rondo::python
