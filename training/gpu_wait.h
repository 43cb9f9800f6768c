// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string_view>

#include <rondo/communicator.h>

#include "device/objects.h"

namespace rondo::training {

// A wait for a GPU: the rank and operation that wait, and for how long.
struct GpuWait {
  int rank = 0;
  std::string_view operation;          // "gradient buckets 1 (2 parameters, first 'p0')"
  std::chrono::milliseconds deadline;  // from the call of await_gpu()
  std::string_view setting;            // what sets the deadline
};
// The wait of an operation with this deadline; 0: the communicator's.
GpuWait gpu_wait(const Communicator& communicator, std::string_view operation,
                 std::chrono::milliseconds deadline = {}) noexcept;

// Waits for an event. The GPU's context is current. Throws Error with `what`, the work that comes
// before the event: deadline_exceeded, because the program's own work may keep the GPU busy; system
// if the GPU has failed.
void await_gpu(const device::Gpu& gpu, const device::Event& event, const GpuWait& wait,
               std::string_view what);

}  // namespace rondo::training
