// SPDX-License-Identifier: Apache-2.0
#include "transports/cuda_ipc/cuda_ipc.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "device/keep.h"

namespace rondo::cuda_ipc {

namespace {

// For CUDA to close what this rank has open of others.
constexpr milliseconds closing_time{2000};
// For the others to let go of what this rank has registered.
constexpr milliseconds least_goodbye{100};

}  // namespace

CudaWindows::CudaWindows(int rank, transports::Windows& below, host::DescriptorPassing& passing,
                         std::shared_ptr<device::Gpus> gpus)
    : GpuWindows(below.ranks()),
      rank_(rank),
      below_(below),
      passing_(passing),
      gpus_(std::move(gpus)),
      exports_(std::make_shared<Exports>(below, passing, rank)),
      imports_(std::make_unique<Imports>(rank, below, gpus_, exports_)) {
  passing_.set_sink(this);
}

CudaWindows::~CudaWindows() {
  close(true, base::Clock::now());
}

// First this rank lets go of what others have registered, since they may wait for that here.
void CudaWindows::close(bool idle, base::TimePoint until) noexcept {
  if (std::exchange(closed_, true)) return;
  passing_.set_sink(nullptr);
  if (!imports_->close(idle, std::max(until, base::Clock::now() + closing_time))) {
    device::keep_until_exit(std::move(imports_));
    base::log_line(base::LogLevel::warning,
                   fmt::format("rank {}: CUDA has not closed memory of other ranks within {} ms: "
                               "what this rank has open of theirs stays so until it is done, or "
                               "until the process ends",
                               rank_, closing_time.count()));
  }
  exports_->close(idle, std::max(until, base::Clock::now() + least_goodbye));
}

}  // namespace rondo::cuda_ipc
