// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace rondo::layer {

// The fat binary of batch norm's kernels for GPUs (kernels.h lists them), for device::Module. Null
// in a build without nvcc (-Dcuda). Thread-safe; the memory lives as long as the library.
const void* device_image() noexcept;

}  // namespace rondo::layer
