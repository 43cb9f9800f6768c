// SPDX-License-Identifier: Apache-2.0
//
// The list of batch norm's kernels for GPUs (docs/reference/device-kernels.md). kernels.cu makes an
// entry point of each line, and the tests a function that runs on the processor.
#pragma once

#include "bn/layer/device/channels.h"
#include "bn/layer/device/fold.h"
#include "bn/layer/device/maps.h"
#include "bn/layer/device/sums.h"

#define RONDO_BN_KERNELS_OF(KERNEL, type, ...)               \
  KERNEL(rondo_bn_moments_##type, Sums<__VA_ARGS__, false>)  \
  KERNEL(rondo_bn_gradients_##type, Sums<__VA_ARGS__, true>) \
  KERNEL(rondo_bn_forward_##type, Maps<__VA_ARGS__, false>)  \
  KERNEL(rondo_bn_backward_##type, Maps<__VA_ARGS__, true>)

// KERNEL(name of the entry point, struct of the kernel)
#define RONDO_BN_KERNELS(KERNEL)              \
  RONDO_BN_KERNELS_OF(KERNEL, f64, RealF64)   \
  RONDO_BN_KERNELS_OF(KERNEL, f32, RealF32)   \
  RONDO_BN_KERNELS_OF(KERNEL, f16, RealF16)   \
  RONDO_BN_KERNELS_OF(KERNEL, bf16, RealBF16) \
  KERNEL(rondo_bn_fold, Fold)                 \
  KERNEL(rondo_bn_channels, Channels)
