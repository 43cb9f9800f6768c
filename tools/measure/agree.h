// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>

#include <cstdint>
#include <span>

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

inline std::uint64_t sum_over_ranks(Communicator& communicator, std::uint64_t value) {
  const Buffer buffer = buffer_of(std::span(&value, 1));
  communicator.all_reduce(buffer, buffer, ReduceOp::sum).wait();
  return value;
}

inline double sum_over_ranks(Communicator& communicator, double value) {
  const Buffer buffer = buffer_of(std::span(&value, 1));
  communicator.all_reduce(buffer, buffer, ReduceOp::sum).wait();
  return value;
}

}  // namespace rondo::tools
