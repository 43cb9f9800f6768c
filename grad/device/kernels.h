// SPDX-License-Identifier: Apache-2.0
//
// The list of gradient buckets' kernels for GPUs (docs/reference/device-kernels.md). kernels.cu
// makes an entry point of each line, and the tests a function that runs on the processor.
#pragma once

#include "grad/device/clip.h"
#include "grad/device/pieces.h"
#include "grad/device/squares.h"

// KERNEL(name of the entry point, struct of the kernel)
#define RONDO_GRAD_KERNELS(KERNEL)                                                  \
  KERNEL(rondo_grad_move, Pieces<Moves>)                                            \
  KERNEL(rondo_grad_to_bf16, Pieces<Conversions<Narrow<base::BF16>>>)               \
  KERNEL(rondo_grad_from_bf16, Pieces<Conversions<Widen<base::BF16>>>)              \
  KERNEL(rondo_grad_to_f16, Pieces<Conversions<Narrow<base::F16>>>)                 \
  KERNEL(rondo_grad_from_f16, Pieces<Conversions<Widen<base::F16>>>)                \
  KERNEL(rondo_grad_squares_f64, SquareSums<OneBlock<SquaresOf<double>>>)           \
  KERNEL(rondo_grad_squares_f32, SquareSums<OneBlock<SquaresOf<float>>>)            \
  KERNEL(rondo_grad_squares_f16, SquareSums<OneBlock<SquaresOfShort<base::F16>>>)   \
  KERNEL(rondo_grad_squares_bf16, SquareSums<OneBlock<SquaresOfShort<base::BF16>>>) \
  KERNEL(rondo_grad_add_blocks, SquareSums<AllBlocks>)                              \
  KERNEL(rondo_grad_clip_f64, Clip<ClipF64>)                                        \
  KERNEL(rondo_grad_clip_f32, Clip<ClipF32>)                                        \
  KERNEL(rondo_grad_clip_f16, Clip<ClipShort<base::F16>>)                           \
  KERNEL(rondo_grad_clip_bf16, Clip<ClipShort<base::BF16>>)
