// SPDX-License-Identifier: Apache-2.0
#include "bn/device/gpu_record.h"
#include "device/keep.h"

namespace rondo::bn {

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

}  // namespace rondo::bn
