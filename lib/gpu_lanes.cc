// SPDX-License-Identifier: Apache-2.0
#include "lib/gpu_lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "collectives/direct/area.h"
#include "device/keep.h"
#include "device/pointer.h"
#include "lib/connect.h"
#include "lib/gpu_buffers.h"

namespace rondo::lib {

namespace {

// Bounds on pieces of a GPU's memory: docs/gpu.md has how they follow from Options::staging_bytes.
constexpr std::size_t least_staging = std::size_t{64} << 10;
constexpr std::size_t most_gpu_chunk = std::size_t{256} << 20;
// For the other ranks to let go of what this one has registered.
constexpr milliseconds least_goodbye{100};

}  // namespace

// A lane has two halves. An element of each rank's block must fit, also in a mean of integers.
std::size_t gpu_staging_bytes(std::size_t staging_bytes, int ranks) noexcept {
  const std::size_t blocks = static_cast<std::size_t>(ranks) * 2 * sizeof(std::int64_t);
  return std::max({staging_bytes / lane_count / 2, least_staging, blocks});
}

std::size_t gpu_chunk_bytes(std::size_t staging_bytes) noexcept {
  return std::clamp(2 * staging_bytes, least_staging, most_gpu_chunk);
}

void GpuLanes::share(int rank, transports::Windows& host, std::span<const int> ranks) {
  sharing_.emplace(host, ranks);
  windows_ = make_gpu_windows(rank, *sharing_, gpus_);
}

void GpuLanes::check_buffers(const Arguments& a) const {
  const CheckedCall call{a.traits().name, a.rank, a.size};
  if (a.reads_in()) check_buffer(call, a.in, "in");
  if (a.writes_out()) check_buffer(call, a.out, "out");
}

void GpuLanes::check_buffer(const CheckedCall& call, const Buffer& b, std::string_view name) const {
  name_call(call, [&] { check_on_gpu(call, gpus_->gpu(b.device), b, name); });
}

// Made at the first use.
template <class Kind, class Make>
Kind& GpuLanes::find(ByGpu<Kind>& all, int device, const Needs& needs, Make make) {
  if (const auto found = all.find(device); found != all.end()) return *found->second.kind;
  OnGpu<Kind> made;
  made.kind = make(gpus_->gpu(device));
  gpu::Port& port = made.kind->port();
  made.registration = needs.keep(port.memory(), port.bytes());
  return *all.emplace(device, std::move(made)).first->second.kind;
}

gpu::SegmentStaging& GpuLanes::staging(int device, Priority priority, const Needs& needs) {
  return find(lanes_[static_cast<std::size_t>(priority)], device, needs,
              [&](const device::Gpu& gpu) {
                return std::make_unique<gpu::SegmentStaging>(
                    gpu, needs.bytes, priority == Priority::urgent, needs.waker);
              });
}

gpu::MessageStaging& GpuLanes::transfers(int device, const Needs& needs) {
  return find(messages_, device, needs, [&](const device::Gpu& gpu) {
    return std::make_unique<gpu::MessageStaging>(gpu, needs.ranks, needs.waker);
  });
}

gpu::Mover& GpuLanes::mover(int device, Priority priority, const Needs& needs,
                            direct::DirectUse use) {
  windows_->catch_up(gpus_->gpu(device));
  auto& movers = movers_[static_cast<std::size_t>(use)][static_cast<std::size_t>(priority)];
  gpu::Mover& mover = find(movers, device, needs, [&](const device::Gpu& gpu) {
    return std::make_unique<gpu::Mover>(
        gpu, *windows_,
        gpu::Mover::Size{windows_->ranks().size(), direct::direct_slot_bytes(priority),
                         gpu::gpu_slot_bytes(needs.chunk_bytes, priority)},
        priority == Priority::urgent, needs.waker);
  });
  mover.make_wanted_slots();
  return mover;
}

std::unique_ptr<transports::Allocation> GpuLanes::allocate(int device, std::size_t bytes) {
  const device::Gpu& gpu = gpus_->gpu(device);
  if (windows_ != nullptr && device::why_not_shared(gpu).empty()) {
    windows_->catch_up(gpu);  // lets go of what others have freed
    return windows_->allocate(device, bytes);
  }
  return allocate_on_gpu(gpus_, device, bytes);
}

std::unique_ptr<transports::Registration> GpuLanes::register_memory(int device,
                                                                    std::span<std::byte> memory) {
  const device::Gpu& gpu = gpus_->gpu(device);
  std::string problem;
  {
    const device::Current current(gpu);
    problem = device::problem_of_memory(gpu, memory.data(), memory.size(), "it is registered");
  }
  if (!problem.empty()) throw Error(Errc::invalid_argument, "the memory " + problem);
  if (windows_ == nullptr) return nullptr;
  windows_->catch_up(gpu);
  return windows_->register_memory(device, memory);
}

template <class Function>
void GpuLanes::for_each_mover(Function function) {
  for (auto& use : movers_)
    for (auto& lane : use)
      for (auto& [device, on_gpu] : lane) function(*on_gpu.kind);
}

template <class Function>
void GpuLanes::for_each_port(Function function) {
  for (auto& lane : lanes_)
    for (auto& [device, on_gpu] : lane) function(on_gpu.kind->port());
  for_each_mover([&](gpu::Mover& mover) { function(mover.port()); });
  for (auto& [device, on_gpu] : messages_) function(on_gpu.kind->port());
}

void GpuLanes::settle(int rank) noexcept {
  const base::TimePoint until = base::Clock::now() + operation::DeviceMemory::settle_time;
  bool settled = true;
  for_each_port([&](gpu::Port& port) { settled = port.settle(until) && settled; });
  if (windows_) windows_->close(settled, std::max(until, base::Clock::now() + least_goodbye));
  if (settled) return;
  // A kernel may still read what has been mapped.
  if (windows_) device::keep_until_exit(std::move(windows_));
  for_each_mover([](gpu::Mover& mover) { mover.abandon(); });
  for_each_port([](gpu::Port& port) { port.abandon(); });
  base::log_line(base::LogLevel::warning,
                 fmt::format("rank {}: a GPU has not done its work {} ms after the end of the "
                             "communicator: staging memory stays allocated",
                             rank, operation::DeviceMemory::settle_time.count()));
}

}  // namespace rondo::lib
