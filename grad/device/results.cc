// SPDX-License-Identifier: Apache-2.0
#include "grad/device/results.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include <rondo/error.h>

namespace rondo::grad {

void await_gpu(const device::Gpu& gpu, const device::Event& event, std::string_view what) {
  constexpr std::chrono::milliseconds longest_wait{60'000};
  const device::Status status = device::wait_for(event, longest_wait);
  if (status == device::not_ready)
    throw Error(Errc::system, fmt::format("GPU {} does not run kernels: nothing has ended in {} s",
                                          gpu.ordinal(), longest_wait.count() / 1000));
  gpu.check(status, what);
}

Results::Results(const Setup& setup, const device::Gpu& gpu)
    : gpu_(gpu),
      squares_(setup.options.norms ? setup.parameters.size() + 1 : 0),
      sizes_(setup.options.wire == DType::f16 ? setup.parameters.size() : 0),
      words_(sizes_ == 0 ? 0 : sizes_ + setup.layout.buckets.size()),
      memory_(gpu,
              std::max(squares_ * sizeof(double) + words_ * sizeof(std::uint32_t), sizeof(double))),
      host_(gpu, memory_.bytes()),
      fetched_(gpu) {
  std::memset(host_.data(), 0, host_.bytes());
  device::set_to_zero(gpu, memory_);
}

void Results::forget_sizes(device::StreamHandle stream) {
  if (words_ == 0) return;
  const auto address = reinterpret_cast<device::Address>(sizes_at());
  gpu_.check(gpu_.driver().set_bytes(address, 0, words_ * sizeof(std::uint32_t), stream),
             "cuMemsetD8Async");
}

void Results::fetch(device::StreamHandle stream) {
  gpu_.check(gpu_.driver().copy_to_host(host_.data(), memory_.address(), host_.bytes(), stream),
             "cuMemcpyDtoHAsync");
  gpu_.check(fetched_.record(stream), "cuEventRecord");
  pending_ = true;
}

void Results::await() {
  if (!pending_) return;
  await_gpu(gpu_, fetched_, "the gradients' kernels");
  pending_ = false;
}

}  // namespace rondo::grad
