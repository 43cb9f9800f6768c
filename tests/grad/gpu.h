// SPDX-License-Identifier: Apache-2.0
//
// Gradient buckets on a GPU, as a program with one stream or several uses them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "gpu/gpu_ranks.h"
#include "grad/tensors.h"
#include "support/fake_kernels.h"

namespace rondo::testing {

// The kernels of Rondo, on the fake driver. A real one has them in the image.
inline void have_kernels() {
  if (FakeCuda::needs_kernels()) register_device_kernels(FakeCuda());
}

// A setup for ranks with GPUs that have the kernels.
inline Setup gpu_setup(int size = 2) {
  have_kernels();
  Setup setup;
  setup.size = size;
  setup.options.deadline = std::chrono::seconds{10};
  return setup;
}

inline device::Address address_of(const Buffer& buffer) noexcept {
  return reinterpret_cast<device::Address>(buffer.data);
}

// Pinned host memory, with copies between it and the GPU that a stream orders.
class PinnedBytes {
 public:
  PinnedBytes(const OnGpu& on, std::size_t bytes) : on_(on), memory_(on.gpu(), bytes + 1) {}
  std::byte* data() const noexcept { return memory_.data(); }
  void to_gpu(device::Address to, std::size_t bytes, const device::Stream& stream) const {
    const device::Current current(on_.gpu());
    on_.gpu().check(on_.gpu().driver().copy_to_device(to, data(), bytes, stream.get()), "copy");
  }
  void to_host(device::Address from, std::size_t bytes, const device::Stream& stream) const {
    const device::Current current(on_.gpu());
    on_.gpu().check(on_.gpu().driver().copy_to_host(data(), from, bytes, stream.get()), "copy");
  }

 private:
  const OnGpu& on_;
  device::PinnedMemory memory_;
};

// Makes a stream wait for what another one has now.
inline void chain(const OnGpu& on, const device::Stream& first, const device::Stream& then) {
  device::Event event(on.gpu());
  const device::Current current(on.gpu());
  on.gpu().check(event.record(first.get()), "record");
  on.gpu().check(on.gpu().driver().stream_wait_event(then.get(), event.get(), 0), "wait");
}

}  // namespace rondo::testing
