// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/kernels/reduce.h"

namespace rondo::kernels {

// The widest instruction set that this build, the processor and the operating system have.
Isa detect_isa() noexcept;

}  // namespace rondo::kernels
