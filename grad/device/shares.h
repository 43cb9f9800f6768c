// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/host_device.h"
#include "device/phases.h"

namespace rondo::grad {
namespace {

// Deals elements out to the threads of the grid.
struct Shares {
  const device::GridThread& thread;
  std::uint64_t before = 0;  // what has been dealt out

  // Calls body(i) for this thread's share of the numbers below count.
  template <class Body>
  RONDO_HD void each(std::uint64_t count, const Body& body) noexcept {
    const std::uint64_t all = thread.all();
    RONDO_ROLLED
    for (std::uint64_t i = (thread.place() + all - before % all) % all; i < count; i += all)
      body(i);
    before += count;
  }
};

}  // namespace
}  // namespace rondo::grad
