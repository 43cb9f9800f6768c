// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "grad/device/arguments.h"

namespace rondo::grad {

// Makes a pass at once on the processor, with the bits of the kernels for GPUs
// (device/kernels.h). Reentrant. Nothing is allocated.
void run_on_host(const Pass& pass, std::span<const Piece> pieces);

}  // namespace rondo::grad
