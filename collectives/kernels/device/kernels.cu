// SPDX-License-Identifier: Apache-2.0
//
// The entry points of the kernels.
#include "collectives/kernels/device/block.h"
#include "collectives/kernels/device/kernels.h"

namespace rondo::kernels {
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

#define RONDO_ENTRY(name, ...)                                         \
  extern "C" __global__ void __launch_bounds__(block_threads)          \
      name(const __grid_constant__ __VA_ARGS__::Arguments arguments) { \
    run<__VA_ARGS__>(arguments);                                       \
  }
RONDO_DEVICE_KERNELS(RONDO_ENTRY)
#undef RONDO_ENTRY

}  // namespace rondo::kernels
