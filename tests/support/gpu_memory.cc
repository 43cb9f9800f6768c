// SPDX-License-Identifier: Apache-2.0
#include "support/gpu_memory.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

namespace rondo::testing {

namespace {

constexpr std::size_t step_bytes = 256 << 10;

}  // namespace

int gpus_of_tests() {
  static const int gpus = [] {
    const device::LoadedDriver loaded = device::load_driver();
    if (!loaded.driver) throw std::runtime_error(loaded.obstacle);
    return std::min(2, device::gpu_count(*loaded.driver));
  }();
  return gpus;
}

GpuCopier::GpuCopier(const device::Gpu& gpu) : gpu_(gpu), memory_(gpu, step_bytes), queue_(gpu) {}

void GpuCopier::finish() {
  queue_.end_batch();
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{60};
  while (!queue_.take_ended()) {
    if (std::chrono::steady_clock::now() > until)
      throw std::runtime_error("a GPU has not copied for 60 s");
    ::sched_yield();
  }
}

void GpuCopier::write(device::Address to, std::span<const std::byte> from) {
  const device::Current current(gpu_);
  for (std::size_t done = 0; done < from.size(); done += step_bytes) {
    const auto part = from.subspan(done, std::min(step_bytes, from.size() - done));
    std::memcpy(memory_.data(), part.data(), part.size());
    queue_.to_device(to + done, memory_.data(), part.size());
    finish();
  }
}

void GpuCopier::read(std::span<std::byte> to, device::Address from) {
  const device::Current current(gpu_);
  for (std::size_t done = 0; done < to.size(); done += step_bytes) {
    const auto part = to.subspan(done, std::min(step_bytes, to.size() - done));
    queue_.to_host(memory_.data(), from + done, part.size());
    finish();
    std::memcpy(part.data(), memory_.data(), part.size());
  }
}

}  // namespace rondo::testing
