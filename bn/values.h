// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/types.h>
#include <cstddef>

namespace rondo::bn {

// Element i of a buffer of f64 or f32; `otherwise` where there is none.
inline double value(const Buffer& buffer, std::size_t i, double otherwise = 0) noexcept {
  if (buffer.count == 0) return otherwise;
  return buffer.type == DType::f64 ? static_cast<const double*>(buffer.data)[i]
                                   : static_cast<double>(static_cast<const float*>(buffer.data)[i]);
}

inline void set(const Buffer& buffer, std::size_t i, double value) noexcept {
  if (buffer.type == DType::f64)
    static_cast<double*>(buffer.data)[i] = value;
  else
    static_cast<float*>(buffer.data)[i] = static_cast<float>(value);
}

}  // namespace rondo::bn
