// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/objects.h"
#include "grad/device/arguments.h"
#include "grad/device/await.h"
#include "grad/setup.h"

namespace rondo::grad {

// What the kernels of a step find out for the host, on the GPU and in pinned host memory: sums of
// squares (with norms); sizes of gradients and which sums have overflowed (with f16 on the wire).
//
// Threads: the step thread (see Setup), but addresses may be read by any. The GPU's context is
// current, but for the constructor and the destructor.
// Failure: everything throws Error(system) where the GPU refuses it.
class Results {
 public:
  Results(const Setup& setup, const device::Gpu& gpu);

  // On the GPU. After the squares of all parameters comes the sum of them.
  std::byte* square_at(std::size_t parameter) const noexcept {
    return at(parameter * sizeof(double));
  }
  std::uint32_t* sizes_at() const noexcept {
    return reinterpret_cast<std::uint32_t*>(at(squares_ * sizeof(double)));
  }
  std::uint32_t* overflow_at(std::size_t bucket) const noexcept {
    return sizes_at() + sizes_ + bucket;
  }
  void forget_sizes(device::StreamHandle stream);  // and overflows
  void* spare_word() const noexcept { return sizes_at() + words_ - 1; }

  // Copies all to the host, in the stream.
  void fetch(device::StreamHandle stream);
  // Waits for the last fetch(). Throws what await_gpu() throws.
  void await(const GpuWait& wait);
  // What it has brought; at first zeros.
  std::span<const double> squares() const noexcept {
    return {reinterpret_cast<const double*>(host_.data()), squares_};
  }
  std::span<const float> sizes() const noexcept {
    return {reinterpret_cast<const float*>(host_.data() + squares_ * sizeof(double)), sizes_};
  }
  bool overflowed(std::size_t bucket) const noexcept {
    return sizes().data()[sizes_ + bucket] != 0;
  }

 private:
  std::byte* at(std::size_t offset) const noexcept {
    return reinterpret_cast<std::byte*>(memory_.address() + offset);
  }

  const device::Gpu& gpu_;
  // words: sizes, overflows by bucket, one more
  const std::size_t squares_, sizes_, words_;
  device::DeviceMemory memory_;
  device::PinnedMemory host_;
  device::Event fetched_;
  bool pending_ = false;  // await() has not seen the last fetch()
};

}  // namespace rondo::grad
