// SPDX-License-Identifier: Apache-2.0
//
// Which ranks reach each other's GPUs, and calls on buffers there.
#include <algorithm>

#include "lib/connect.h"
#include "lib/state.h"

namespace rondo::lib {

// Whether two-level operations on GPUs use their memory inside each host, where they can.
bool CommunicatorState::wants_gpus_inside() const noexcept {
  return plan_options_.algorithm == schedules::Algorithm::two_level && hosts_.count() > 1;
}

// Comes before the engine, whose thread drives the transports.
void CommunicatorState::share_memory_of_gpus() {
  if (plan_options_.algorithm != schedules::Algorithm::direct && !wants_gpus_inside()) return;
  for (const auto& transport : transports_) {
    transports::Windows* const windows = transport->windows();
    if (windows == nullptr) continue;
    const std::span<const int> ranks = windows->ranks();
    if (!wants_gpus_inside() && ranks.size() == static_cast<std::size_t>(place_.size))
      return gpu_lanes_.share(place_.rank, *windows, ranks);
    if (wants_gpus_inside() && local_ranks_.size() > 1 &&
        std::ranges::includes(ranks, local_ranks_))
      return gpu_lanes_.share(place_.rank, *windows, local_ranks_);
  }
}

GpuLanes::Needs CommunicatorState::gpu_needs() {
  return {place_.size, gpu_staging_bytes(options_.staging_bytes, place_.size),
          gpu_chunk_bytes(options_.staging_bytes), engine_->waker(),
          [this](void* data, std::size_t bytes) { return register_with_all(data, bytes); }};
}

operation::GpuInside CommunicatorState::movers_inside(int device, const schedules::Call& call) {
  if (!wants_gpus_inside() || !gpu_lanes_.has_windows()) return {};
  const lanes::StagesInside stages = engine_->stages_inside(call.signature);
  const auto mover = [&](direct::DirectUse use) {
    return &gpu_lanes_.mover(device, call.priority, gpu_needs(), use);
  };
  return {stages.sums ? mover(direct::DirectUse::sums) : nullptr,
          stages.copies ? mover(direct::DirectUse::copies) : nullptr};
}

// Programs let the GPU's streams wait for the result, so nobody drives soon.
Work CommunicatorState::start_on_gpu(const Arguments& a, const schedules::Call& call) {
  const auto stream = static_cast<device::StreamHandle>(a.options->stream);
  schedules::Call unattended = call;
  unattended.unattended = true;
  return name_call({a.traits().name, a.rank, a.size}, [&] {
    engine::GpuCall on_gpu{.stream = stream};
    if (call.signature.algorithm == schedules::Algorithm::direct)
      on_gpu.mover = &gpu_lanes_.mover(a.device(), call.priority, gpu_needs());
    else
      on_gpu.staging = &gpu_lanes_.staging(a.device(), call.priority, gpu_needs());
    on_gpu.inside = movers_inside(a.device(), call);
    device::refuse_capture(on_gpu.port().gpu(), stream, "OpOptions::stream");
    return Work(engine_->start(unattended, on_gpu));
  });
}

}  // namespace rondo::lib
