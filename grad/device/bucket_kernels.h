// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <rondo/types.h>

#include "device/gpus.h"
#include "device/objects.h"
#include "grad/device/arguments.h"
#include "grad/device/clip.h"
#include "training/parameter_check.h"

namespace rondo::grad {

// The kernels of kernels.h, in that order.
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
  clip_f64,
  clip_f32,
  clip_f16,
  clip_bf16
};
inline constexpr std::size_t bucket_kernels = 14;
// The kernels for gradients of this type.
BucketKernel squares_kernel(DType type) noexcept;
BucketKernel clip_kernel(DType type) noexcept;

// The kernels of gradient buckets on one GPU, which the object keeps. Thread-safe.
class BucketKernels {
 public:
  // Loads them, and may block. Throws Error: unsupported without a driver or in a build without
  // kernels; invalid_argument if there is no such GPU; system in the driver's words.
  explicit BucketKernels(int ordinal);

  const device::Gpu& gpu() const noexcept { return gpu_; }
  // Enqueues a launch. The context is current. Throws Error(system).
  void launch(BucketKernel kernel, const PieceArguments& arguments,
              device::StreamHandle stream) const;
  void launch_clip(DType type, const ClipArguments& arguments, device::StreamHandle stream) const;

 private:
  void launch(BucketKernel kernel, const void* arguments, unsigned blocks,
              device::StreamHandle stream) const;

  device::Gpus gpus_;
  const device::Gpu& gpu_;
  device::Module module_;
  std::array<device::FunctionHandle, bucket_kernels> functions_{};
};

// Why BucketKernels cannot be made here; none if they can.
std::optional<training::OwnProblem> problem_of_gpu(int ordinal);

// Collects the pieces of one pass over a bucket. Pieces that lie back to back become one, unless
// they are summed up, and a launch takes as many as fit: one for most buckets. Thread-bound. Throws
// as launch() does.
class Launches {
 public:
  Launches(const BucketKernels& kernels, BucketKernel kernel, double factor,
           device::StreamHandle stream, std::uint32_t* words = nullptr) noexcept;
  void add(const DevicePiece& piece);
  void finish();  // after the last piece

 private:
  bool continues(const DevicePiece& piece) const noexcept;

  const BucketKernels& kernels_;
  const BucketKernel kernel_;
  const device::StreamHandle stream_;
  PieceArguments arguments_;
};

}  // namespace rondo::grad
