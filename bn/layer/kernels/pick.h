// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bn/layer/kernels/maps.h"
#include "bn/layer/kernels/sums.h"
#include "bn/layer/kernels/table.h"

namespace rondo::layer {
namespace {

template <class Machine, class T, bool backward>
constexpr Loops loops_for{Sums<Machine, T, backward>::run, Sums<Machine, T, backward>::rows,
                          Maps<Machine, T, backward>::run, Maps<Machine, T, backward>::rows};

template <class Machine, class T>
constexpr Kernels kernels_for{loops_for<Machine, T, false>, loops_for<Machine, T, true>,
                              Machine::fence};

template <class Machine>
const Kernels& pick(DType type) noexcept {
  switch (type) {
    case DType::f64:
      return kernels_for<Machine, double>;
    case DType::f16:
      return kernels_for<Machine, Half>;
    case DType::bf16:
      return kernels_for<Machine, Brain>;
    default:
      return kernels_for<Machine, float>;
  }
}

}  // namespace
}  // namespace rondo::layer
