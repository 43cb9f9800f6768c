// SPDX-License-Identifier: Apache-2.0
//
// The list of gradient buckets' kernels for GPUs (docs/reference/device-kernels.md). kernels.cu
// makes an entry point of each line, launches.cc a row of its table, and the tests a function that
// runs on the processor.
#pragma once

#include "grad/device/pieces.h"
#include "grad/device/squares.h"

// KERNEL(name of the entry point, struct of the kernel)
#define RONDO_GRAD_KERNELS(KERNEL)                          \
  KERNEL(rondo_grad_move, Pieces<Moves>)                    \
  KERNEL(rondo_grad_to_bf16, Pieces<Products<F32, BF16>>)   \
  KERNEL(rondo_grad_from_bf16, Pieces<Products<BF16, F32>>) \
  KERNEL(rondo_grad_to_f16, Pieces<Products<F32, F16>>)     \
  KERNEL(rondo_grad_from_f16, Pieces<Products<F16, F32>>)   \
  KERNEL(rondo_grad_squares_f64, Sums<OneBlock<F64>>)       \
  KERNEL(rondo_grad_squares_f32, Sums<OneBlock<F32>>)       \
  KERNEL(rondo_grad_squares_f16, Sums<OneBlock<F16>>)       \
  KERNEL(rondo_grad_squares_bf16, Sums<OneBlock<BF16>>)     \
  KERNEL(rondo_grad_add_blocks, Sums<AllBlocks>)            \
  KERNEL(rondo_grad_scale_f64, Pieces<Products<F64, F64>>)  \
  KERNEL(rondo_grad_scale_f32, Pieces<Products<F32, F32>>)  \
  KERNEL(rondo_grad_scale_f16, Pieces<Products<F16, F16>>)  \
  KERNEL(rondo_grad_scale_bf16, Pieces<Products<BF16, BF16>>)
