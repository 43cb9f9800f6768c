// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace rondo::tools {

// All ranks call these together and get the same result. A failed operation throws, as Work::wait()
// does. This one replaces each value by its maximum over the ranks.
inline void maximum_over_ranks(Communicator& communicator, std::span<double> values) {
  const Buffer buffer = buffer_of(values);
  communicator.all_reduce(buffer, buffer, ReduceOp::max).wait();
}

inline double maximum_over_ranks(Communicator& communicator, double value) {
  maximum_over_ranks(communicator, std::span(&value, 1));
  return value;
}

// Does a step of its own on each rank. Returns whether it has succeeded on all of them; where it
// failed, `trouble` says why.
template <class Step>
bool succeeds_on_all(Communicator& communicator, std::string& trouble, Step step) {
  try {
    step();
  } catch (const std::exception& error) {
    trouble = error.what();
  }
  return maximum_over_ranks(communicator, trouble.empty() ? 0 : 1) == 0;
}

// The values of all ranks, by rank.
template <class T>
std::vector<T> gather_from_ranks(Communicator& communicator, T own) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(communicator.size()));
  communicator
      .all_gather(Buffer{&own, sizeof own, DType::u8},
                  Buffer{all.data(), all.size() * sizeof own, DType::u8})
      .wait();
  return all;
}

template <class T>
T sum_over_ranks(Communicator& communicator, T value) {
  const Buffer buffer = buffer_of(std::span(&value, 1));
  communicator.all_reduce(buffer, buffer, ReduceOp::sum).wait();
  return value;
}

}  // namespace rondo::tools
