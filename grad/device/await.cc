// SPDX-License-Identifier: Apache-2.0
#include "grad/device/await.h"

#include <fmt/format.h>

#include <chrono>

#include <rondo/error.h>

namespace rondo::grad {

void await_gpu(const device::Gpu& gpu, const device::Event& event, std::string_view what) {
  constexpr std::chrono::milliseconds longest_wait{60'000};
  const device::Status status = device::wait_for(event, longest_wait);
  if (status == device::not_ready)
    throw Error(Errc::system,
                fmt::format("GPU {} has not done {} in {} s: the program's work before them keeps "
                            "it busy, or it hangs",
                            gpu.ordinal(), what, longest_wait.count() / 1000));
  gpu.check(status, what);
}

}  // namespace rondo::grad
