// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/host_device.h"

namespace rondo::device {
namespace {

// to = the larger of both, for kernels (phases.h). Threads of all blocks may do it at once, with a
// word of memory or of Shared. The result does not depend on their order.
RONDO_HD inline void raise(std::uint32_t& to, std::uint32_t value) noexcept {
#ifdef __CUDA_ARCH__
  atomicMax(&to, value);
#else
  if (value > to) to = value;
#endif
}

}  // namespace
}  // namespace rondo::device
