// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <stdexcept>
#include <thread>

#include "device/objects.h"
#include "fake/control.h"

// GPU 0 of the driver, with its context current on the thread of the test. Over the fake driver no
// failure, permission or work of one test reaches the next.
struct OneGpu {
  explicit OneGpu(int ordinal = 0) : gpu(*loaded.driver, ordinal), current(gpu) {}
  ~OneGpu() {
    if (!FakeCuda::here()) return;
    fake.clear();
    fake.settle();
  }

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
  const rondo::device::LoadedDriver loaded = load();
  const rondo::device::CudaDriver& driver = *loaded.driver;
  const rondo::device::Gpu gpu;
  const rondo::device::Current current;

 private:
  static rondo::device::LoadedDriver load() {
    rondo::device::LoadedDriver loaded = rondo::device::load_driver();
    if (loaded.driver == nullptr) throw std::runtime_error(loaded.obstacle);
    return loaded;
  }
};
