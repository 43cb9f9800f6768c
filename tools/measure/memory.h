// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>
#include <rondo/gpu.h>

#include <cstddef>
#include <utility>

namespace rondo::tools {

// Memory for the operands of a benchmark, on the host or on a GPU. The host writes inputs and
// checks results in its own memory; for a GPU that is a copy, and the two functions at the end
// bring one to the other. Thread-bound.
class BenchMemory {
 public:
  BenchMemory() noexcept = default;
  explicit BenchMemory(Memory memory) noexcept : memory_(std::move(memory)) {}
  // Memory of the stream's GPU. The stream outlives the object. Throws Error(system).
  BenchMemory(Memory memory, GpuStream& gpu)
      : memory_(std::move(memory)), copy_(memory_.bytes()), gpu_(&gpu) {}

  // What operations get.
  void* data() const noexcept { return memory_.data(); }
  std::size_t bytes() const noexcept { return memory_.bytes(); }
  bool holds(const std::byte* at) const noexcept {
    return at >= begin() && at < begin() + memory_.bytes();
  }
  // Where the host has the bytes at an address of data().
  std::byte* host(std::byte* at) const noexcept {
    return gpu_ == nullptr ? at : static_cast<std::byte*>(copy_.data()) + (at - begin());
  }
  // Both copy the first bytes, and throw as GpuStream does. For host memory they do nothing.
  void bring_to_gpu(std::size_t bytes) {
    if (gpu_ != nullptr) gpu_->copy_to_gpu(data(), copy_.data(), bytes);
  }
  void bring_to_host(std::size_t bytes) {
    if (gpu_ != nullptr) gpu_->copy_to_host(copy_.data(), data(), bytes);
  }

 private:
  std::byte* begin() const noexcept { return static_cast<std::byte*>(memory_.data()); }

  Memory memory_, copy_;
  GpuStream* gpu_ = nullptr;
};

}  // namespace rondo::tools
