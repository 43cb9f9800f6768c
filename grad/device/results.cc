// SPDX-License-Identifier: Apache-2.0
#include "grad/device/results.h"

#include <algorithm>
#include <cstring>

namespace rondo::grad {

Results::Results(const Setup& setup, const device::Gpu& gpu)
    : gpu_(gpu),
      squares_(setup.options.norms ? setup.parameters.size() + 1 : 0),
      overflows_(setup.options.wire == DType::f16 ? setup.parameters.size() : 0),
      memory_(gpu, std::max(squares_ * sizeof(double) + overflows_ * sizeof(std::uint32_t),
                            sizeof(double))),
      host_(gpu, memory_.bytes()),
      fetched_(gpu) {
  std::memset(host_.data(), 0, host_.bytes());
  device::set_to_zero(gpu, memory_);
}

void Results::fetch(device::StreamHandle stream) {
  gpu_.check(gpu_.driver().copy_to_host(host_.data(), memory_.address(), host_.bytes(), stream),
             "cuMemcpyDtoHAsync");
  gpu_.check(fetched_.record(stream), "cuEventRecord");
  pending_ = true;
}

void Results::await(const training::GpuWait& wait) {
  if (!pending_) return;
  training::await_gpu(gpu_, fetched_, wait, "the gradients' kernels");
  pending_ = false;
}

bool Results::arrived() noexcept {
  if (pending_) pending_ = fetched_.query() != device::success;
  return !pending_;
}

}  // namespace rondo::grad
