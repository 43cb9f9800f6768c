// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bn/kernels/maps.h"
#include "bn/kernels/sums.h"
#include "bn/kernels/table.h"

namespace rondo::bn {
namespace {

template <class Machine, class T>
constexpr Kernels kernels_for{Sums<Machine, T>::run_moments,   Sums<Machine, T>::rows_moments,
                              Sums<Machine, T>::run_gradients, Sums<Machine, T>::rows_gradients,
                              Maps<Machine, T>::run_forward,   Maps<Machine, T>::rows_forward,
                              Maps<Machine, T>::run_backward,  Maps<Machine, T>::rows_backward,
                              Sums<Machine, T>::elements,      Machine::fence};

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
}  // namespace rondo::bn
