// SPDX-License-Identifier: Apache-2.0
#include "collectives/gpu/segment_staging.h"

namespace rondo::gpu {

SegmentStaging::SegmentStaging(const device::Gpu& gpu, std::size_t half_bytes, bool urgent,
                               std::shared_ptr<operation::Waker> waker)
    : OnPort(gpu, {.bytes = 2 * half_bytes, .queues = 4}, urgent, std::move(waker)),
      end_event_(port_.take_event()) {
  for (std::size_t i = 0; i < halves_.size(); ++i)
    halves_[i] = {nullptr, port_.memory() + i * half_bytes, &port_.queue(2 * i),
                  &port_.queue(2 * i + 1)};
}

bool SegmentStaging::advance() {
  const device::Current current(port_.gpu());
  bool moved = grant();
  for (Half& half : halves_)
    if (half.owner != nullptr) moved = advance(half) || moved;
  return moved;
}

// Grants halves in the order of the starts, which is the same on all ranks. So operations never
// wait for each other in a circle.
bool SegmentStaging::grant() {
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

bool SegmentStaging::advance(Half& half) {
  bool moved = false;
  while (!half.loads->idle() && half.loads->take_ended()) {
    half.owner->run.loaded();
    moved = true;
  }
  while (!half.stores->idle() && half.stores->take_ended()) {
    half.owner->run.stored();
    half.owner->times.stored = base::Clock::now();
    moved = true;
  }
  moved = store(half) || moved;
  return load(half) || moved;
}

// A segment without values to load needs no copy, but the segments before it open first.
bool SegmentStaging::load(Half& half) {
  operation::ScheduledOperation& operation = *half.owner;
  std::uint64_t& segment = operation.staged.loads;
  bool moved = false;
  while (segment < operation.run.segments_openable() && half.loads->has_room()) {
    copies_.clear();
    if (operation.staged.inside.sums == nullptr) operation.run.append_loads(segment, copies_);
    if (copies_.empty() && half.loads->idle()) {
      operation.run.loaded();
    } else {
      if (!operation.mark.reached) break;
      if (segment == 0) operation.times.copied = base::Clock::now();
      for (const operation::Run::Copy& copy : copies_)
        half.loads->to_host(copy.staging, address_of(operation.in) + copy.offset, copy.bytes);
      half.loads->end_batch();
    }
    ++segment;
    moved = true;
  }
  return moved;
}

bool SegmentStaging::store(Half& half) {
  operation::ScheduledOperation& operation = *half.owner;
  if (operation.staged.inside.copies != nullptr) return false;
  std::uint64_t& segment = operation.staged.stores;
  bool moved = false;
  while (segment < operation.run.segments_done() && half.stores->has_room()) {
    copies_.clear();
    operation.run.append_stores(segment, copies_);
    if (copies_.empty() && half.stores->idle()) {
      operation.run.stored();
    } else {
      if (!operation.mark.reached) break;
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

operation::ScheduledOperation* SegmentStaging::take_complete() noexcept {
  for (Half& half : halves_)
    if (half.owner != nullptr && half.owner->run.complete())
      return std::exchange(half.owner, nullptr);
  return nullptr;
}

void SegmentStaging::join(const operation::Operation& operation, Stream stream) {
  const device::Gpu& gpu = port_.gpu();
  device::refuse_capture(gpu, stream, "Work::join");
  const device::Current current(gpu);
  device::Event& end = port_.event(end_event_);
  for (Half& half : halves_)
    if (half.owner == &operation) half.stores->record(end);
  gpu.check(gpu.driver().stream_wait_event(stream, end.get(), 0),
            "cuStreamWaitEvent on the stream that joins");
}

void SegmentStaging::forget_all() noexcept {
  OnPort::forget_all();
  waiting_.clear();
  for (Half& half : halves_) half.owner = nullptr;
}

}  // namespace rondo::gpu
