// SPDX-License-Identifier: Apache-2.0
#include "bn/layer/device/objects.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/clock.h"
#include "bn/layer/device/image.h"
#include "device/keep.h"

namespace rondo::layer {

namespace {

const void* checked_image() {
  const void* const image = device_image();
  if (image == nullptr)
    throw Error(
        Errc::unsupported,
        "batch norm: this build of Rondo has no kernels for GPUs; build it with nvcc (-Dcuda)");
  return image;
}

}  // namespace

GpuKernels::GpuKernels(int ordinal) : gpu_(gpus_.gpu(ordinal)), module_(gpu_, checked_image()) {}

void GpuKernels::load(DType type) {
  for (std::size_t i = 0; i < device_kernels; ++i) {
    device::FunctionHandle& function = functions_[i][static_cast<std::size_t>(type)];
    if (function == nullptr)
      function = module_.function(name_of(static_cast<DeviceKernel>(i), type));
  }
}

void GpuKernels::launch_with(DeviceKernel kernel, DType type, const void* arguments,
                             unsigned blocks, device::StreamHandle stream) const {
  void* parameters[] = {const_cast<void*>(arguments)};
  const device::FunctionHandle function =
      functions_[static_cast<std::size_t>(kernel)][static_cast<std::size_t>(type)];
  const device::Status status = gpu_.driver().launch_kernel(
      function, blocks, 1, 1, device::block_threads, 1, 1, 0, stream, parameters, nullptr);
  if (status != device::success)
    gpu_.check(status, fmt::format("cuLaunchKernel of {}", name_of(kernel, type)));
}

void StreamUse::begin(device::StreamHandle stream) {
  if (used_)
    gpu_.check(gpu_.driver().stream_wait_event(stream, last_.get(), 0), "cuStreamWaitEvent");
}

void StreamUse::end(device::StreamHandle stream) {
  gpu_.check(last_.record(stream), "cuEventRecord");
  used_ = true;
}

bool StreamUse::settle() const noexcept {
  if (!used_ || !gpu_.here()) return true;
  try {
    const device::Current current(gpu_);
    return device::wait_for(last_, settle_time) != device::not_ready;
  } catch (const Error&) {
    return true;  // the GPU has failed, and runs nothing any more
  }
}

GpuArrays::GpuArrays(const device::Gpu& gpu, std::size_t elements)
    : memory_(gpu, std::max<std::size_t>(elements, 1) * sizeof(double)) {
  device::set_to_zero(gpu, memory_);
}

GpuRecord::GpuRecord(std::shared_ptr<const GpuKernels> kernels, std::size_t channels)
    : kernels_(std::move(kernels)),
      channels_(channels),
      arrays_(std::make_unique<GpuArrays>(kernels_->gpu(), 5 * channels + 1)),
      use_(kernels_->gpu()) {}

GpuRecord::~GpuRecord() {
  // Memory that work may still use is never freed.
  if (!use_.settle()) device::keep_until_exit(std::move(arrays_));
}

DeviceRecord GpuRecord::arrays() const noexcept {
  double* const first = arrays_->data();
  return {first,
          first + channels_,
          first + 2 * channels_,
          first + 3 * channels_,
          first + 4 * channels_,
          first + 5 * channels_};
}

}  // namespace rondo::layer
