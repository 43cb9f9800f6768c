// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/objects.h"
#include "grad/device/arguments.h"
#include "grad/setup.h"
#include "training/gpu_wait.h"

namespace rondo::grad {

// What the kernels of a step find out for the host, on the GPU and in pinned host memory: sums of
// squares (with norms), and which gradients have overflowed (with f16 on the wire).
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
  // A word for each parameter; no kernel makes one 0 again.
  std::uint32_t* overflows_at() const noexcept {
    return reinterpret_cast<std::uint32_t*>(at(squares_ * sizeof(double)));
  }

  // Copies all to the host, in the stream.
  void fetch(device::StreamHandle stream);
  // Waits for the last fetch(). Throws what await_gpu() throws.
  void await(const training::GpuWait& wait);
  // Whether the last fetch() has ended. The same without waiting.
  bool arrived() noexcept;
  // What it has brought; at first zeros.
  std::span<const double> squares() const noexcept {
    return {reinterpret_cast<const double*>(host_.data()), squares_};
  }
  std::span<const std::uint32_t> overflows() const noexcept {
    return {reinterpret_cast<const std::uint32_t*>(host_.data() + squares_ * sizeof(double)),
            overflows_};
  }

 private:
  std::byte* at(std::size_t offset) const noexcept {
    return reinterpret_cast<std::byte*>(memory_.address() + offset);
  }

  const device::Gpu& gpu_;
  const std::size_t squares_, overflows_;  // how many
  device::DeviceMemory memory_;
  device::PinnedMemory host_;
  device::Event fetched_;
  bool pending_ = false;  // nobody has seen the end of the last fetch()
};

}  // namespace rondo::grad
