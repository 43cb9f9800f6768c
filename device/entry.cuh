// SPDX-License-Identifier: Apache-2.0
//
// Makes an entry point of a kernel (phases.h): RONDO_ENTRY(name, struct of the kernel).
#pragma once

#include "device/phases.h"

namespace rondo::device {
namespace {

template <class Kernel>
__device__ void run(const typename Kernel::Arguments& arguments) {
  __shared__ typename Kernel::Shared shared;
  const GridThread thread{threadIdx.x, blockDim.x, blockIdx.x, gridDim.x};
  for (int phase = 0; phase < Kernel::phases; ++phase) {
    if (phase != 0) __syncthreads();
    Kernel::run(phase, arguments, shared, thread);
  }
}

}  // namespace
}  // namespace rondo::device

#define RONDO_ENTRY(name, ...)                                               \
  extern "C" __global__ void __launch_bounds__(::rondo::device::block_threads) \
      name(const __grid_constant__ __VA_ARGS__::Arguments arguments) {       \
    ::rondo::device::run<__VA_ARGS__>(arguments);                            \
  }
