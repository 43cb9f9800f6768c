// SPDX-License-Identifier: Apache-2.0
//
// The list of gradient buckets' kernels for GPUs (docs/device-kernels.md). kernels.cu makes an
// entry point of each line, and the tests a function that runs on the processor.
#pragma once

#include "grad/device/pieces.h"

// KERNEL(name of the entry point, struct of the kernel)
#define RONDO_GRAD_KERNELS(KERNEL)                        \
  KERNEL(rondo_grad_move, Pieces<Moves>)                  \
  KERNEL(rondo_grad_to_bf16, Pieces<Conversions<ToBF16>>) \
  KERNEL(rondo_grad_from_bf16, Pieces<Conversions<FromBF16>>)
