// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation/gpu_port.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <exception>

#include "device/keep.h"

namespace rondo::operation {

namespace {

// More operations than this are seldom under way in a lane.
constexpr std::size_t first_marks = 32;
// Calls of a lane seldom come from more streams at once.
constexpr std::size_t first_watchers = 2;
// CUDA's handle for the default stream of the calling thread.
const auto per_thread = reinterpret_cast<device::StreamHandle>(2);

}  // namespace

GpuStream GpuStream::of(device::StreamHandle handle) noexcept {
  return {handle, handle == per_thread ? std::this_thread::get_id() : std::thread::id()};
}

GpuPort::Parts::Parts(const device::Gpu& gpu, const Size& size, bool urgent)
    : memory(gpu, size.bytes) {
  for (std::size_t i = 0; i < size.queues; ++i) queues.emplace_back(gpu, urgent);
}

// On a thread of the driver.
void GpuPort::Calls::wake(void* calls) {
  Calls& self = *static_cast<Calls*>(calls);
  self.waker->wake();
  self.left.fetch_sub(1, std::memory_order_release);
}

GpuPort::GpuPort(const device::Gpu& gpu, const Size& size, bool urgent,
                 std::shared_ptr<Waker> waker)
    : gpu_(gpu),
      calls_(std::make_unique<Calls>(std::move(waker))),
      parts_(std::make_unique<Parts>(gpu, size, urgent)) {
  for (std::size_t i = 0; i < first_marks; ++i) add_mark(device::Event(gpu));
  for (std::size_t i = 0; i < first_watchers; ++i) add_watcher(device::Stream(gpu, urgent));
}

GpuPort::~GpuPort() {
  // A GPU that has failed never makes the calls that are left; if it does, they find this.
  if (calls_ && calls_->left.load(std::memory_order_acquire) != 0)
    device::keep_until_exit(std::move(calls_));
}

void GpuPort::abandon() noexcept {
  device::keep_until_exit(std::move(parts_));
  device::keep_until_exit(std::move(calls_));
}

// Marks.

void GpuPort::add_mark(device::Event mark) {
  free_marks_.reserve(parts_->marks.size() + 1);
  parts_->marks.push_back(std::move(mark));
  free_marks_.push_back(parts_->marks.size() - 1);
}

bool GpuPort::wants_watcher(device::StreamHandle stream) const noexcept {
  return streams_.size() == parts_->watchers.size() &&
         std::ranges::find(streams_, GpuStream::of(stream), &Used::stream) == streams_.end();
}

void GpuPort::add_watcher(device::Stream watcher) {
  free_watchers_.reserve(parts_->watchers.size() + 1);
  streams_.reserve(parts_->watchers.size() + 1);
  parts_->watchers.push_back(std::move(watcher));
  free_watchers_.push_back(static_cast<int>(parts_->watchers.size() - 1));
}

GpuMark GpuPort::set_mark(device::StreamHandle stream) {
  GpuMark mark;
  mark.index = free_marks_.back();
  mark.stream = GpuStream::of(stream);
  const device::Current current(gpu_);
  gpu_.check(event(mark).record(stream), "cuEventRecord on the stream of the call");
  free_marks_.pop_back();
  const auto used = std::ranges::find(streams_, mark.stream, &Used::stream);
  if (used == streams_.end())
    streams_.push_back({mark.stream, 1});
  else
    ++used->marks;
  return mark;
}

void GpuPort::give_back(const GpuMark& mark) noexcept {
  free_marks_.push_back(mark.index);
  const auto used = std::ranges::find(streams_, mark.stream, &Used::stream);
  if (used != streams_.end() && --used->marks == 0) streams_.erase(used);
  if (mark.watcher >= 0) free_watchers_.push_back(mark.watcher);
}

bool GpuPort::reached(GpuMark& mark) const {
  if (mark.reached) return true;
  const device::Status status = parts_->marks[mark.index].query();
  if (status == device::not_ready) return false;
  gpu_.check(status, "the work before the call on its stream");
  return mark.reached = true;
}

bool GpuPort::has_news(const GpuMark& mark) const noexcept {
  return !mark.reached && parts_->marks[mark.index].query() != device::not_ready;
}

std::string GpuPort::awaited(const GpuMark& mark) const {
  if (mark.reached) return {};
  try {
    const device::Current current(gpu_);
    if (has_news(mark)) return {};
  } catch (const std::exception&) {  // the GPU has failed: reached() says it
    return {};
  }
  return fmt::format(
      "GPU {}, which has not yet done the work that was enqueued on the call's stream before the "
      "call",
      gpu_.ordinal());
}

// Waking the driver.

// Before a call is enqueued it counts, because it may be made at once.
template <class Enqueue>
void GpuPort::call(Enqueue enqueue) {
  calls_->left.fetch_add(1, std::memory_order_relaxed);
  bool enqueued = false;
  try {
    enqueued = enqueue();
  } catch (...) {
    calls_->left.fetch_sub(1, std::memory_order_relaxed);
    throw;
  }
  if (!enqueued) calls_->left.fetch_sub(1, std::memory_order_relaxed);
}

void GpuPort::watch(GpuMark& mark) {
  if (mark.reached || mark.watcher >= 0 || free_watchers_.empty()) return;
  device::Stream& stream = parts_->watchers[static_cast<std::size_t>(free_watchers_.back())];
  call([&] {
    gpu_.check(stream.wait(event(mark)), "cuStreamWaitEvent");
    gpu_.check(gpu_.driver().launch_host_function(stream.get(), Calls::wake, calls_.get()),
               "cuLaunchHostFunc");
    return true;
  });
  mark.watcher = free_watchers_.back();
  free_watchers_.pop_back();
}

void GpuPort::watch(device::CopyQueue& queue) {
  if (queue.idle()) return;
  call([&] { return queue.call_when_ended(Calls::wake, calls_.get()); });
}

// Waiting for the end.

// Nothing is under way on a GPU whose context cannot be used any more.
template <class Done>
bool GpuPort::wait_until(base::TimePoint until, Done done) noexcept {
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

bool GpuPort::copies_ended() noexcept {
  bool ended = true;
  for (device::CopyQueue& queue : parts_->queues) ended = queue.drain() && ended;
  return ended;
}

bool GpuPort::await_copies(base::TimePoint until) noexcept {
  return !gpu_.here() || wait_until(until, [&] { return copies_ended(); });
}

bool GpuPort::settle(base::TimePoint until) noexcept {
  return gpu_.here() && wait_until(until, [&] {
           const bool marks_reached = std::ranges::none_of(
               parts_->marks, [](const auto& m) { return m.query() == device::not_ready; });
           const bool called = calls_->left.load(std::memory_order_acquire) == 0;
           return copies_ended() && marks_reached && (called || parts_->queues.front().failed());
         });
}

}  // namespace rondo::operation
