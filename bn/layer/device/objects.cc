// SPDX-License-Identifier: Apache-2.0
#include "bn/layer/device/objects.h"

#include <fmt/format.h>

#include <algorithm>

#include "bn/layer/device/image.h"

namespace rondo::layer {

using namespace std::chrono_literals;

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

GpuKernels::GpuKernels(int ordinal, std::chrono::milliseconds settle_time)
    : settle_time_(settle_time), gpu_(gpus_.gpu(ordinal)), module_(gpu_, checked_image()) {}

bool GpuKernels::settle(const device::Event& last) const noexcept {
  if (!gpu_.here()) return true;
  try {
    const device::Current current(gpu_);
    if (device::wait_for(last, hangs_ ? 0ms : settle_time_) != device::not_ready) return true;
    hangs_ = true;
    return false;
  } catch (const Error&) {
    return true;
  }
}

void GpuKernels::load(DType type) {
  for (std::size_t i = 0; i < device_kernels; ++i) {
    device::FunctionHandle& function = functions_[i][static_cast<std::size_t>(type)];
    if (function == nullptr)
      function = module_.function(name_of(static_cast<DeviceKernel>(i), type).c_str());
  }
}

void GpuKernels::launch_with(DeviceKernel kernel, DType type, const void* arguments,
                             unsigned blocks, device::StreamHandle stream) const {
  hangs_ = false;
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
    gpu().check(gpu().driver().stream_wait_event(stream, last_.get(), 0), "cuStreamWaitEvent");
}

void StreamUse::end(device::StreamHandle stream) {
  gpu().check(last_.record(stream), "cuEventRecord");
  used_ = true;
}

GpuArrays::GpuArrays(const device::Gpu& gpu, std::size_t elements)
    : memory_(gpu, std::max<std::size_t>(elements, 1) * sizeof(double)) {
  device::set_to_zero(gpu, memory_);
}

}  // namespace rondo::layer
