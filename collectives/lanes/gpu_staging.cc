// SPDX-License-Identifier: Apache-2.0
#include "collectives/lanes/gpu_staging.h"

#include <algorithm>
#include <utility>

namespace rondo::lanes {

namespace {

device::Address address_of(const std::byte* buffer) noexcept {
  return reinterpret_cast<device::Address>(buffer);
}

}  // namespace

GpuStaging::GpuStaging(const device::Gpu& gpu, std::size_t half_bytes, bool urgent,
                       std::shared_ptr<operation::Waker> waker)
    : half_bytes_(half_bytes),
      port_(gpu, {.bytes = 2 * half_bytes, .queues = 4}, urgent, std::move(waker)) {
  for (std::size_t i = 0; i < halves_.size(); ++i)
    halves_[i] = {nullptr, port_.memory() + i * half_bytes, &port_.queue(2 * i),
                  &port_.queue(2 * i + 1)};
}

void GpuStaging::begin(operation::ScheduledOperation& operation) noexcept {
  waiting_.push(operation);
}

bool GpuStaging::advance() {
  const device::Current current(port_.gpu());
  bool moved = grant();
  for (Half& half : halves_)
    if (half.owner != nullptr) moved = advance(half) || moved;
  return moved;
}

// In the order of the starts, which is the same on all ranks: so operations never wait for each
// other in a circle.
bool GpuStaging::grant() {
  bool moved = false;
  for (Half& half : halves_) {
    if (half.owner != nullptr || waiting_.empty() || !half.loads->idle() || !half.stores->idle())
      continue;
    half.owner = waiting_.pop();
    half.owner->run.give_staging(half.memory);
    moved = true;
  }
  return moved;
}

bool GpuStaging::advance(Half& half) {
  bool moved = false;
  (void)port_.reached(half.owner->on_gpu.mark);  // what no copy asks would stay news
  while (!half.loads->idle() && half.loads->take_ended()) {
    half.owner->run.loaded();
    moved = true;
  }
  while (!half.stores->idle() && half.stores->take_ended()) {
    half.owner->run.stored();
    moved = true;
  }
  moved = store(half) || moved;
  return load(half) || moved;
}

// A segment without values to load needs no copy, but the segments before it open first.
bool GpuStaging::load(Half& half) {
  operation::ScheduledOperation& operation = *half.owner;
  std::uint64_t& segment = operation.on_gpu.loads;
  bool moved = false;
  while (segment < operation.run.segments_openable() && half.loads->has_room()) {
    copies_.clear();
    if (operation.on_gpu.inside.sums == nullptr) operation.run.append_loads(segment, copies_);
    if (copies_.empty() && half.loads->idle()) {
      operation.run.loaded();
    } else {
      if (!port_.reached(operation.on_gpu.mark)) break;
      for (const operation::Run::Copy& copy : copies_)
        half.loads->to_host(copy.staging, address_of(operation.in) + copy.offset, copy.bytes);
      half.loads->end_batch();
    }
    ++segment;
    moved = true;
  }
  return moved;
}

bool GpuStaging::store(Half& half) {
  operation::ScheduledOperation& operation = *half.owner;
  if (operation.on_gpu.inside.copies != nullptr) return false;
  std::uint64_t& segment = operation.on_gpu.stores;
  bool moved = false;
  while (segment < operation.run.segments_done() && half.stores->has_room()) {
    copies_.clear();
    operation.run.append_stores(segment, copies_);
    if (copies_.empty() && half.stores->idle()) {
      operation.run.stored();
    } else {
      if (!port_.reached(operation.on_gpu.mark)) break;
      for (const operation::Run::Copy& copy : copies_)
        half.stores->to_device(address_of(operation.out) + copy.offset, copy.staging, copy.bytes);
      half.stores->end_batch();
    }
    ++segment;
    moved = true;
    any_enqueued_ = any_enqueued_ || operation.enqueued();
  }
  return moved;
}

operation::ScheduledOperation* GpuStaging::take_complete() noexcept {
  for (Half& half : halves_) {
    if (half.owner == nullptr || !half.owner->run.complete()) continue;
    port_.give_back(half.owner->on_gpu.mark);
    return std::exchange(half.owner, nullptr);
  }
  return nullptr;
}

bool GpuStaging::reached(operation::ScheduledOperation& operation) const {
  if (operation.on_gpu.mark.reached) return true;
  const device::Current current(port_.gpu());
  return port_.reached(operation.on_gpu.mark);
}

// The mark has been reached, so it can mark the end too.
void GpuStaging::join(const operation::ScheduledOperation& operation, device::StreamHandle stream) {
  const device::Gpu& gpu = port_.gpu();
  device::refuse_capture(gpu, stream, "Work::join");
  const device::Current current(gpu);
  device::Event& end = port_.event(operation.on_gpu.mark);
  for (Half& half : halves_)
    if (half.owner == &operation) half.stores->record(end);
  gpu.check(gpu.driver().stream_wait_event(stream, end.get(), 0),
            "cuStreamWaitEvent on the stream that joins");
}

// A copy that ends after the last look and before the function is enqueued would wake nobody, so
// this looks again.
bool GpuStaging::prepare_sleep() {
  if (idle()) return true;
  const device::Current current(port_.gpu());
  for (Half& half : halves_) {
    if (half.owner == nullptr) continue;
    port_.watch(half.owner->on_gpu.mark);
    port_.watch(*half.loads);
    port_.watch(*half.stores);
  }
  return std::ranges::none_of(halves_, [&](const Half& half) { return has_news(half); });
}

bool GpuStaging::watch(operation::ScheduledOperation& operation) {
  const device::Current current(port_.gpu());
  port_.watch(operation.on_gpu.mark);
  return !port_.has_news(operation.on_gpu.mark);
}

bool GpuStaging::has_news(const Half& half) const {
  return half.owner != nullptr && (port_.has_news(half.owner->on_gpu.mark) ||
                                   half.loads->has_ended() || half.stores->has_ended());
}

void GpuStaging::clear() noexcept {
  waiting_.clear();
  for (Half& half : halves_) half.owner = nullptr;
}

std::string GpuStaging::awaited(const operation::ScheduledOperation& operation) const {
  return port_.awaited(operation.on_gpu.mark);
}

}  // namespace rondo::lanes
