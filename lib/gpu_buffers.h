// SPDX-License-Identifier: Apache-2.0
//
// Lists what operations check of buffers on GPUs, and memory there. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include <rondo/types.h>

#include "device/gpus.h"
#include "lib/arguments.h"
#include "transports/transport.h"

namespace rondo::lib {

// Checks that the buffer lies in memory of its GPU. Throws as CheckedCall does.
void check_on_gpu(const CheckedCall& call, const device::Gpu& gpu, const Buffer& buffer,
                  std::string_view name);
// Memory of the GPU, zeroed. It keeps `gpus`. Throws Error.
std::unique_ptr<transports::Allocation> allocate_on_gpu(std::shared_ptr<device::Gpus> gpus,
                                                        int ordinal, std::size_t bytes);

}  // namespace rondo::lib
