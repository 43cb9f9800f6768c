// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <rondo/types.h>

#include "device/gpus.h"
#include "device/objects.h"
#include "grad/device/arguments.h"

namespace rondo::grad {

// The kernels of passes over gradients, as in kernels.h. run_on_host() runs them on the processor,
// BucketKernels on a GPU.
enum class BucketKernel : std::uint8_t {
  move,
  to_bf16,
  from_bf16,
  to_f16,
  from_f16,
  squares_f64,
  squares_f32,
  squares_f16,
  squares_bf16,
  add_blocks,
  scale_f64,
  scale_f32,
  scale_f16,
  scale_bf16
};
inline constexpr std::size_t bucket_kernels = 14;
// The kernels for gradients of this type.
BucketKernel squares_kernel(DType type) noexcept;
BucketKernel scale_kernel(DType type) noexcept;

// One pass: see PieceArguments.
struct Pass {
  BucketKernel kernel = BucketKernel::move;
  double factor = 1;
  std::uint32_t* words = nullptr;
  const double* squares = nullptr;
};

// The kernels of gradient buckets on one GPU, which the object keeps. Thread-safe.
class BucketKernels {
 public:
  // Loads them, and may block. Throws Error: unsupported without a driver or in a build without
  // kernels; invalid_argument if there is no such GPU; system in the driver's words.
  explicit BucketKernels(int ordinal);

  const device::Gpu& gpu() const noexcept { return gpu_; }
  // Enqueues a pass. Pieces that lie back to back become one, unless they are summed up, and a
  // launch takes as many as fit: one for most buckets. The context is current. Throws
  // Error(system).
  void run(const Pass& pass, std::span<const Piece> pieces, device::StreamHandle stream) const;

 private:
  void launch(BucketKernel kernel, PieceArguments& arguments, device::StreamHandle stream) const;

  device::Gpus gpus_;
  const device::Gpu& gpu_;
  device::Module module_;
  std::array<device::FunctionHandle, bucket_kernels> functions_{};
};

}  // namespace rondo::grad
