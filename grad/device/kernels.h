// SPDX-License-Identifier: Apache-2.0
//
// The list of gradient buckets' kernels for GPUs (docs/reference/device-kernels.md). kernels.cu
// makes an entry point of each line, launches.cc a row of its table, and the tests a function that
// runs on the processor.
#pragma once

#include "grad/device/pieces.h"
#include "grad/device/squares.h"

// KERNEL(name of the entry point, struct of the kernel)
#define RONDO_GRAD_KERNELS(KERNEL)                                    \
  KERNEL(rondo_grad_move, Pieces<U16, U16>)                           \
  KERNEL(rondo_grad_to_bf16, Pieces<F32, BF16>)                       \
  KERNEL(rondo_grad_from_bf16, Pieces<BF16, F32>)                     \
  KERNEL(rondo_grad_to_f16, Pieces<F32, F16>)                         \
  KERNEL(rondo_grad_from_f16, Pieces<F16, F32>)                       \
  KERNEL(rondo_grad_squares_f64, Sums<F64, Operation::sum_squares>)   \
  KERNEL(rondo_grad_squares_f32, Sums<F32, Operation::sum_squares>)   \
  KERNEL(rondo_grad_squares_f16, Sums<F16, Operation::sum_squares>)   \
  KERNEL(rondo_grad_squares_bf16, Sums<BF16, Operation::sum_squares>) \
  KERNEL(rondo_grad_add_blocks, Sums<F64, Operation::sum_blocks>)     \
  KERNEL(rondo_grad_scale_f64, Pieces<F64, F64>)                      \
  KERNEL(rondo_grad_scale_f32, Pieces<F32, F32>)                      \
  KERNEL(rondo_grad_scale_f16, Pieces<F16, F16>)                      \
  KERNEL(rondo_grad_scale_bf16, Pieces<BF16, BF16>)
