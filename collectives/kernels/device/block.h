// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace rondo::kernels {

// Threads of a block in every launch. The kernels are compiled for no more.
inline constexpr unsigned block_threads = 256;

}  // namespace rondo::kernels
