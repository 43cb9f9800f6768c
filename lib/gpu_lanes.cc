// SPDX-License-Identifier: Apache-2.0
#include "lib/gpu_lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "lib/gpu_buffers.h"

namespace rondo::lib {

namespace {

constexpr std::size_t least_staging = std::size_t{64} << 10;

}  // namespace

// A lane has two halves. An element of each rank's block must fit.
std::size_t gpu_staging_bytes(std::size_t staging_bytes, int ranks) noexcept {
  const std::size_t blocks = static_cast<std::size_t>(ranks) * size_of(DType::f64);
  return std::max({staging_bytes / lane_count / 2, least_staging, blocks});
}

void GpuLanes::check_buffers(const Arguments& a) const {
  const CheckedCall call{a.traits().name, a.rank, a.size};
  name_call(a, [&] {
    const device::Gpu& gpu = gpus_->gpu(a.device());
    if (a.reads_in()) check_on_gpu(call, gpu, a.in, "in");
    if (a.writes_out()) check_on_gpu(call, gpu, a.out, "out");
  });
}

engine::GpuStaging& GpuLanes::staging(int device, Priority priority, const Needs& needs) {
  std::map<int, OnGpu>& lane = lanes_[static_cast<std::size_t>(priority)];
  if (const auto found = lane.find(device); found != lane.end()) return *found->second.staging;
  OnGpu made;
  made.staging = std::make_unique<engine::GpuStaging>(gpus_->gpu(device), needs.bytes,
                                                      priority == Priority::urgent, needs.waker);
  made.registration = needs.keep(made.staging->memory(), made.staging->bytes());
  return *lane.emplace(device, std::move(made)).first->second.staging;
}

void GpuLanes::settle(int rank) noexcept {
  const base::TimePoint until = base::Clock::now() + engine::GpuStaging::settle_time;
  bool settled = true;
  for (auto& lane : lanes_)
    for (auto& [device, on_gpu] : lane) settled = on_gpu.staging->settle(until) && settled;
  if (settled) return;
  for (auto& lane : lanes_)
    for (auto& [device, on_gpu] : lane) on_gpu.staging->abandon();
  base::log_line(base::LogLevel::warning,
                 fmt::format("rank {}: a GPU has not done its work {} ms after the end of the "
                             "communicator: staging memory stays allocated",
                             rank, engine::GpuStaging::settle_time.count()));
}

}  // namespace rondo::lib
