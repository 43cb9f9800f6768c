// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <stdexcept>
#include <thread>

#include "device/objects.h"
#include "fake/control.h"

// GPU 0 of the fake driver, with its context current on the thread of the test. A failure or a
// permission of one test does not reach the next.
struct OneGpu {
  explicit OneGpu(int ordinal = 0) : gpu(*loaded.driver, ordinal), current(gpu) {}
  ~OneGpu() { fake.clear(); }

  // Waits for the event as an application does, by asking.
  rondo::device::Status wait(const rondo::device::Event& event) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (;;) {
      const rondo::device::Status status = event.query();
      if (status != rondo::device::not_ready) return status;
      if (std::chrono::steady_clock::now() > deadline)
        throw std::runtime_error("an event has not come in 20 s");
      std::this_thread::yield();
    }
  }

  const FakeCuda fake{};
  const rondo::device::LoadedDriver loaded = rondo::device::load_driver();
  const rondo::device::CudaDriver& driver = *loaded.driver;
  const rondo::device::Gpu gpu;
  const rondo::device::Current current;
};
