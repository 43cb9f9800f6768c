// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "device/objects.h"

namespace rondo::grad {

// Waits for an event, at most a minute: other work of the program may keep the GPU busy. The GPU's
// context is current. Throws Error(system) with `what` when that time is over or the GPU has
// failed.
void await_gpu(const device::Gpu& gpu, const device::Event& event, std::string_view what);

}  // namespace rondo::grad
