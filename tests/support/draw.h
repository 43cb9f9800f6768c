// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "support/values.h"

namespace rondo::testing {

// A sequence of pseudo-random numbers that a seed determines.
class Draw {
 public:
  explicit Draw(std::uint64_t seed, std::uint64_t stream = 0) : seed_(seed), stream_(stream) {}
  // 0 to sides - 1
  std::uint64_t operator()(std::uint64_t sides) { return mixed(seed_, ++drawn_, stream_) % sides; }
  template <class T, std::size_t N>
  T one_of(const T (&choices)[N]) {
    return choices[(*this)(N)];
  }

 private:
  std::uint64_t seed_, stream_, drawn_ = 0;
};

}  // namespace rondo::testing
