// SPDX-License-Identifier: Apache-2.0
#include "training/gpu_wait.h"

#include <fmt/format.h>

#include <rondo/error.h>

namespace rondo::training {

GpuWait gpu_wait(const Communicator& communicator, std::string_view operation,
                 std::chrono::milliseconds deadline) noexcept {
  if (deadline.count() > 0)
    return {communicator.rank(), operation, deadline, "GradientOptions::deadline"};
  return {communicator.rank(), operation, communicator.deadline(), "Options::deadline"};
}

void await_gpu(const device::Gpu& gpu, const device::Event& event, const GpuWait& wait,
               std::string_view what) {
  const device::Status status = device::wait_for(event, wait.deadline);
  if (status == device::not_ready)
    throw Error(Errc::deadline_exceeded,
                fmt::format("rank {}: {}: GPU {} has not done {} within the deadline of {} ms: "
                            "work that the program enqueued before keeps it busy, or hangs; find "
                            "that work, or set a longer {}",
                            wait.rank, wait.operation, gpu.ordinal(), what, wait.deadline.count(),
                            wait.setting));
  gpu.check(status, what);
}

}  // namespace rondo::training
