// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/gpu_staging.h"

#include <fmt/format.h>
#include <sched.h>

#include <exception>
#include <utility>

#include "base/log.h"

namespace rondo::engine {

namespace {

device::Address address_of(const std::byte* buffer) noexcept {
  return reinterpret_cast<device::Address>(buffer);
}

}  // namespace

GpuStaging::Parts::Parts(const device::Gpu& gpu, std::size_t bytes, bool urgent,
                         std::shared_ptr<Waker> its_waker)
    : waker(std::move(its_waker)),
      memory(gpu, bytes),
      queues{device::CopyQueue(gpu, urgent), device::CopyQueue(gpu, urgent),
             device::CopyQueue(gpu, urgent), device::CopyQueue(gpu, urgent)} {}

bool GpuStaging::Parts::drain() noexcept {
  bool idle = true;
  for (device::CopyQueue& queue : queues) idle = queue.drain() && idle;
  return idle && (calls.load(std::memory_order_acquire) == 0 || queues.front().failed());
}

// On a thread of the driver.
void GpuStaging::Parts::wake(void* parts) {
  Parts& self = *static_cast<Parts*>(parts);
  self.waker->wake();
  self.calls.fetch_sub(1, std::memory_order_release);
}

GpuStaging::GpuStaging(const device::Gpu& gpu, std::size_t half_bytes, bool urgent,
                       std::shared_ptr<Waker> waker)
    : gpu_(gpu),
      half_bytes_(half_bytes),
      parts_(std::make_unique<Parts>(gpu, 2 * half_bytes, urgent, std::move(waker))) {
  for (std::size_t i = 0; i < halves_.size(); ++i)
    halves_[i] = {nullptr, memory() + i * half_bytes, &parts_->queues[2 * i],
                  &parts_->queues[2 * i + 1]};
}

GpuStaging::~GpuStaging() {
  // Memory that a copy may still use must not be freed.
  if (!gpu_.here() || !is_idle_by(base::Clock::now() + settle_time))
    static_cast<void>(parts_.release());
}

// Copies to a GPU whose context cannot be used any more have ended.
bool GpuStaging::is_idle_by(base::TimePoint until) noexcept {
  bool usable = true;
  do {
    try {
      const device::Current current(gpu_);
      usable = true;
      if (parts_->drain()) return true;
    } catch (const std::exception&) {
      usable = false;
    }
    ::sched_yield();
  } while (base::Clock::now() < until);
  return !usable;
}

void GpuStaging::add_mark(device::Event mark) {
  free_marks_.reserve(parts_->marks.size() + 1);
  parts_->marks.push_back(std::move(mark));
  free_marks_.push_back(parts_->marks.size() - 1);
}

std::size_t GpuStaging::set_mark(device::StreamHandle stream) {
  const std::size_t mark = free_marks_.back();
  const device::Current current(gpu_);
  gpu_.check(parts_->marks[mark].record(stream), "cuEventRecord on the stream of the call");
  free_marks_.pop_back();
  return mark;
}

void GpuStaging::begin(ScheduledOperation& operation) noexcept {
  operation.on_gpu.next = nullptr;
  (first_ == nullptr ? first_ : last_->on_gpu.next) = &operation;
  last_ = &operation;
}

bool GpuStaging::advance() {
  const device::Current current(gpu_);
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
    if (half.owner != nullptr || first_ == nullptr || !half.loads->idle() || !half.stores->idle())
      continue;
    half.owner = std::exchange(first_, first_->on_gpu.next);
    half.owner->run.give_staging(half.memory);
    const device::Event& mark = parts_->marks[half.owner->on_gpu.mark];
    half.loads->wait_for(mark);
    half.stores->wait_for(mark);
    moved = true;
  }
  return moved;
}

bool GpuStaging::advance(Half& half) {
  bool moved = false;
  while (!half.loads->idle() && half.loads->take_ended()) {
    half.owner->on_gpu.mark_reached = true;
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
  ScheduledOperation& operation = *half.owner;
  std::uint64_t& segment = operation.on_gpu.loads;
  bool moved = false;
  while (segment < operation.run.segments_openable() && half.loads->has_room()) {
    copies_.clear();
    operation.run.append_loads(segment, copies_);
    if (copies_.empty() && half.loads->idle()) {
      operation.run.loaded();
    } else {
      for (const Run::Copy& copy : copies_)
        half.loads->to_host(copy.staging, address_of(operation.in) + copy.offset, copy.bytes);
      half.loads->end_batch();
    }
    ++segment;
    moved = true;
  }
  return moved;
}

bool GpuStaging::store(Half& half) {
  ScheduledOperation& operation = *half.owner;
  std::uint64_t& segment = operation.on_gpu.stores;
  bool moved = false;
  while (segment < operation.run.segments_done() && half.stores->has_room()) {
    copies_.clear();
    operation.run.append_stores(segment, copies_);
    if (copies_.empty() && half.stores->idle()) {
      operation.run.stored();
    } else {
      if (!mark_reached(operation)) break;
      for (const Run::Copy& copy : copies_)
        half.stores->to_device(address_of(operation.out) + copy.offset, copy.staging, copy.bytes);
      half.stores->end_batch();
    }
    ++segment;
    moved = true;
  }
  return moved;
}

bool GpuStaging::mark_reached(ScheduledOperation& operation) {
  if (operation.on_gpu.mark_reached) return true;
  const device::Status status = parts_->marks[operation.on_gpu.mark].query();
  if (status == device::not_ready) return false;
  gpu_.check(status, "the work before the call on its stream");
  return operation.on_gpu.mark_reached = true;
}

ScheduledOperation* GpuStaging::take_complete() noexcept {
  for (Half& half : halves_) {
    if (half.owner == nullptr || !half.owner->run.complete()) continue;
    give_back(half.owner->on_gpu.mark);
    return std::exchange(half.owner, nullptr);
  }
  return nullptr;
}

// The mark has been reached, so it can mark the end too.
void GpuStaging::join(const ScheduledOperation& operation, device::StreamHandle stream) {
  const device::Current current(gpu_);
  device::Event& end = parts_->marks[operation.on_gpu.mark];
  for (Half& half : halves_)
    if (half.owner == &operation) half.stores->record(end);
  gpu_.check(gpu_.driver().stream_wait_event(stream, end.get(), 0),
             "cuStreamWaitEvent on the stream that joins");
}

void GpuStaging::prepare_sleep() {
  if (idle()) return;
  const device::Current current(gpu_);
  for (Half& half : halves_) {
    if (half.owner == nullptr) continue;
    watch(*half.loads);
    watch(*half.stores);
  }
}

void GpuStaging::watch(device::CopyQueue& queue) {
  parts_->calls.fetch_add(1, std::memory_order_relaxed);
  bool will_call = false;
  try {
    will_call = queue.call_when_ended(Parts::wake, parts_.get());
  } catch (...) {
    parts_->calls.fetch_sub(1, std::memory_order_relaxed);
    throw;
  }
  if (!will_call) parts_->calls.fetch_sub(1, std::memory_order_relaxed);
}

// Loads that still wait for a caller's stream write nothing but staging memory, and need no wait.
void GpuStaging::clear() noexcept {
  first_ = last_ = nullptr;
  bool storing = false;
  for (Half& half : halves_) {
    storing = storing || (half.owner != nullptr && !half.stores->idle());
    half.owner = nullptr;
  }
  if (!storing || !gpu_.here()) return;
  const base::TimePoint until = base::Clock::now() + settle_time;
  try {
    const device::Current current(gpu_);
    for (Half& half : halves_)
      while (!half.stores->drain() && base::Clock::now() < until) ::sched_yield();
    if (halves_[0].stores->idle() && halves_[1].stores->idle()) return;
    base::log_line(
        base::LogLevel::warning,
        fmt::format("GPU {}: copies to buffers of failed operations are still under way: do "
                    "not use the buffers before the GPU is idle",
                    gpu_.ordinal()));
  } catch (const std::exception&) {  // the GPU has failed, and its copies with it
  }
}

std::string GpuStaging::awaited(const ScheduledOperation& operation) const {
  if (operation.on_gpu.mark_reached) return {};
  try {
    const device::Current current(gpu_);
    if (parts_->marks[operation.on_gpu.mark].query() != device::not_ready) return {};
  } catch (const std::exception&) {  // the GPU has failed: advance() says it
    return {};
  }
  return fmt::format(
      "GPU {}, which has not yet done the work that was enqueued on the call's stream before the "
      "call",
      gpu_.ordinal());
}

}  // namespace rondo::engine
