// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/gpu_staging.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "device/keep.h"

namespace rondo::engine {

namespace {

// More operations than this are seldom under way in a lane.
constexpr std::size_t first_marks = 32;

device::Address address_of(const std::byte* buffer) noexcept {
  return reinterpret_cast<device::Address>(buffer);
}

}  // namespace

GpuStaging::Parts::Parts(const device::Gpu& gpu, std::size_t bytes, bool urgent)
    : memory(gpu, bytes),
      queues{device::CopyQueue(gpu, urgent), device::CopyQueue(gpu, urgent),
             device::CopyQueue(gpu, urgent), device::CopyQueue(gpu, urgent)} {}

// On a thread of the driver.
void GpuStaging::Calls::wake(void* calls) {
  Calls& self = *static_cast<Calls*>(calls);
  self.waker->wake();
  self.left.fetch_sub(1, std::memory_order_release);
}

GpuStaging::GpuStaging(const device::Gpu& gpu, std::size_t half_bytes, bool urgent,
                       std::shared_ptr<Waker> waker)
    : gpu_(gpu),
      half_bytes_(half_bytes),
      calls_(std::make_unique<Calls>(std::move(waker))),
      parts_(std::make_unique<Parts>(gpu, 2 * half_bytes, urgent)) {
  for (std::size_t i = 0; i < halves_.size(); ++i)
    halves_[i] = {nullptr, memory() + i * half_bytes, &parts_->queues[2 * i],
                  &parts_->queues[2 * i + 1]};
  for (std::size_t i = 0; i < first_marks; ++i) add_mark(device::Event(gpu));
}

GpuStaging::~GpuStaging() {
  // A GPU that has failed never makes the calls that are left; if it does, they find this.
  if (calls_ && calls_->left.load(std::memory_order_acquire) != 0)
    device::keep_until_exit(std::move(calls_));
}

void GpuStaging::abandon() noexcept {
  device::keep_until_exit(std::move(parts_));
  device::keep_until_exit(std::move(calls_));
}

// Nothing is under way on a GPU whose context cannot be used any more.
template <class Done>
bool GpuStaging::wait_until(base::TimePoint until, Done done) noexcept {
  bool usable = true;
  do {
    try {
      const device::Current current(gpu_);
      usable = true;
      if (done()) return true;
    } catch (const std::exception&) {
      usable = false;
    }
    ::sched_yield();
  } while (base::Clock::now() < until);
  return !usable;
}

bool GpuStaging::copies_ended() noexcept {
  bool ended = true;
  for (device::CopyQueue& queue : parts_->queues) ended = queue.drain() && ended;
  return ended;
}

bool GpuStaging::await_copies(base::TimePoint until) noexcept {
  return !gpu_.here() || wait_until(until, [&] { return copies_ended(); });
}

bool GpuStaging::settle(base::TimePoint until) noexcept {
  return gpu_.here() && wait_until(until, [&] {
           const bool marks_reached = std::ranges::none_of(
               parts_->marks, [](const auto& m) { return m.query() == device::not_ready; });
           const bool called = calls_->left.load(std::memory_order_acquire) == 0;
           return copies_ended() && marks_reached && (called || parts_->queues.front().failed());
         });
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
    moved = true;
  }
  return moved;
}

bool GpuStaging::advance(Half& half) {
  bool moved = false;
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
  ScheduledOperation& operation = *half.owner;
  std::uint64_t& segment = operation.on_gpu.loads;
  bool moved = false;
  while (segment < operation.run.segments_openable() && half.loads->has_room()) {
    copies_.clear();
    operation.run.append_loads(segment, copies_);
    if (copies_.empty() && half.loads->idle()) {
      operation.run.loaded();
    } else {
      if (!mark_reached(operation)) break;
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
    any_enqueued_ = any_enqueued_ || operation.enqueued();
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
  device::refuse_capture(gpu_, stream, "Work::join");
  const device::Current current(gpu_);
  device::Event& end = parts_->marks[operation.on_gpu.mark];
  for (Half& half : halves_)
    if (half.owner == &operation) half.stores->record(end);
  gpu_.check(gpu_.driver().stream_wait_event(stream, end.get(), 0),
             "cuStreamWaitEvent on the stream that joins");
}

// What ends after the last look and before the function is enqueued would wake nobody, so this
// looks again.
bool GpuStaging::prepare_sleep() {
  if (idle()) return true;
  const device::Current current(gpu_);
  for (Half& half : halves_)
    if (half.owner != nullptr) watch(half);
  return std::ranges::none_of(halves_, [&](const Half& half) { return has_news(half); });
}

bool GpuStaging::has_news(const Half& half) const {
  if (half.owner == nullptr) return false;
  const auto& at = half.owner->on_gpu;
  return (!at.mark_reached && parts_->marks[at.mark].query() != device::not_ready) ||
         half.loads->has_ended() || half.stores->has_ended();
}

// Before a call is enqueued it counts, because it may be made at once.
void GpuStaging::watch(Half& half) {
  const auto call = [&](const auto& enqueue) {
    calls_->left.fetch_add(1, std::memory_order_relaxed);
    bool enqueued = false;
    try {
      enqueued = enqueue();
    } catch (...) {
      calls_->left.fetch_sub(1, std::memory_order_relaxed);
      throw;
    }
    if (!enqueued) calls_->left.fetch_sub(1, std::memory_order_relaxed);
  };
  auto& at = half.owner->on_gpu;
  if (!at.mark_reached && !at.mark_watched)
    call([&] {
      half.loads->call_when_reached(parts_->marks[at.mark], Calls::wake, calls_.get());
      return at.mark_watched = true;
    });
  for (device::CopyQueue* queue : {half.loads, half.stores})
    if (!queue->idle()) call([&] { return queue->call_when_ended(Calls::wake, calls_.get()); });
}

void GpuStaging::clear() noexcept {
  first_ = last_ = nullptr;
  for (Half& half : halves_) half.owner = nullptr;
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
