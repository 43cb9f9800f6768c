// SPDX-License-Identifier: Apache-2.0
#include "collectives/gpu/port.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <exception>

#include "device/keep.h"

namespace rondo::gpu {

namespace {

// More operations than this are seldom under way in a lane.
constexpr std::size_t first_events = 32;
// Calls of a lane seldom come from more streams at once.
constexpr std::size_t first_watchers = 2;
// CUDA's handle for the default stream of the calling thread.
const auto per_thread = reinterpret_cast<device::StreamHandle>(2);

// An id of the system may be that of a thread that has ended, whose stream still works.
std::uint64_t number_of_this_thread() noexcept {
  static std::atomic<std::uint64_t> last{0};
  thread_local const std::uint64_t own = ++last;
  return own;
}

}  // namespace

Port::Parts::Parts(const device::Gpu& gpu, const Size& size, bool urgent)
    : memory(gpu, size.bytes) {
  for (std::size_t i = 0; i < size.queues; ++i) queues.emplace_back(gpu, urgent);
}

// On a thread of the driver.
void Port::Calls::wake(void* calls) {
  Calls& self = *static_cast<Calls*>(calls);
  self.waker->wake();
  self.left.fetch_sub(1, std::memory_order_release);
}

Port::Port(const device::Gpu& gpu, const Size& size, bool urgent,
           std::shared_ptr<operation::Waker> waker)
    : gpu_(gpu),
      calls_(std::make_unique<Calls>(std::move(waker))),
      parts_(std::make_unique<Parts>(gpu, size, urgent)) {
  for (std::size_t i = 0; i < first_events; ++i) add_event(device::Event(gpu));
  for (std::size_t i = 0; i < first_watchers; ++i) add_watcher(device::Stream(gpu, urgent));
}

Port::~Port() {
  // A GPU that has failed never makes the calls that are left; if it does, they find this.
  if (calls_ && calls_->left.load(std::memory_order_acquire) != 0)
    device::keep_until_exit(std::move(calls_));
}

void Port::abandon() noexcept {
  device::keep_until_exit(std::move(parts_));
  device::keep_until_exit(std::move(calls_));
}

// Spares. There is a watcher for each stream with marks.

Port::Stream Port::stream_of(device::StreamHandle handle) noexcept {
  return {handle, handle == per_thread ? number_of_this_thread() : 0};
}

std::vector<Port::Stream>::iterator Port::find(device::StreamHandle handle) noexcept {
  return std::ranges::find_if(streams_, [own = stream_of(handle)](const Stream& stream) {
    return stream.handle == own.handle && stream.thread == own.thread;
  });
}

bool Port::wants_spares(device::StreamHandle handle) noexcept {
  wants_event_ = free_events_.empty();
  wants_watcher_ = streams_.size() == parts_->watchers.size() && find(handle) == streams_.end();
  return wants_event_ || wants_watcher_;
}

void Port::make_spares() {
  if (wants_event_) spare_event_.emplace(gpu_);
  if (wants_watcher_) spare_watcher_.emplace(gpu_);
}

void Port::add_spares() {
  if (spare_event_) add_event(std::move(*spare_event_));
  if (spare_watcher_) add_watcher(std::move(*spare_watcher_));
  spare_event_.reset();
  spare_watcher_.reset();
}

void Port::add_event(device::Event event) {
  free_events_.reserve(parts_->events.size() + 1);
  parts_->events.push_back(std::move(event));
  free_events_.push_back(parts_->events.size() - 1);
}

void Port::add_watcher(device::Stream watcher) {
  free_watchers_.reserve(parts_->watchers.size() + 1);
  streams_.reserve(parts_->watchers.size() + 1);
  parts_->watchers.push_back(std::move(watcher));
  free_watchers_.push_back(static_cast<int>(parts_->watchers.size() - 1));
}

std::size_t Port::take_event() noexcept {
  const std::size_t number = free_events_.back();
  free_events_.pop_back();
  return number;
}

// Marks.

void Port::set_mark(operation::Mark& mark, device::StreamHandle handle) {
  const device::Current current(gpu_);
  gpu_.check(event(free_events_.back()).record(handle), "cuEventRecord on the stream of the call");
  mark = {.event = take_event(), .reached = false};
  auto stream = find(handle);
  if (stream == streams_.end()) stream = streams_.insert(stream, stream_of(handle));
  stream->marks.push(mark);
}

bool Port::look() {
  if (streams_.empty()) return false;
  const device::Current current(gpu_);
  bool any = false;
  for (std::size_t i = 0; i < streams_.size();) {
    any = take_reached(streams_[i]) || any;
    if (!streams_[i].marks.empty()) {
      ++i;
    } else {
      streams_[i] = streams_.back();
      streams_.pop_back();
    }
  }
  return any;
}

// Throws before it takes a mark that has failed.
bool Port::take_reached(Stream& stream) {
  bool any = false;
  while (!stream.marks.empty()) {
    const device::Status status = event(stream.marks.first()->event).query();
    if (status == device::not_ready) break;
    gpu_.check(status, "the work before the call on its stream");
    operation::Mark& mark = *stream.marks.pop();
    mark.reached = true;
    free_events_.push_back(mark.event);
    if (stream.watcher >= 0) free_watchers_.push_back(stream.watcher);
    stream.watcher = -1;
    any = true;
  }
  return any;
}

std::string Port::awaited(const operation::Mark& mark) const {
  try {
    const device::Current current(gpu_);
    if (parts_->events[mark.event].query() != device::not_ready) return {};
  } catch (const std::exception&) {  // the GPU has failed: look() says it
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
void Port::call(Enqueue enqueue) {
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

void Port::watch(Stream& stream) {
  if (stream.watcher >= 0 || free_watchers_.empty()) return;
  device::Stream& watcher = parts_->watchers[static_cast<std::size_t>(free_watchers_.back())];
  call([&] {
    gpu_.check(watcher.wait(event(stream.marks.first()->event)), "cuStreamWaitEvent");
    gpu_.check(gpu_.driver().launch_host_function(watcher.get(), Calls::wake, calls_.get()),
               "cuLaunchHostFunc");
    return true;
  });
  stream.watcher = free_watchers_.back();
  free_watchers_.pop_back();
}

// A copy that ends after the last look and before the function is enqueued would wake nobody, so
// this looks again.
bool Port::prepare_sleep() {
  const auto is_idle = [](const device::CopyQueue& queue) { return queue.idle(); };
  if (streams_.empty() && std::ranges::all_of(parts_->queues, is_idle)) return true;
  const device::Current current(gpu_);
  for (Stream& stream : streams_) watch(stream);
  for (device::CopyQueue& queue : parts_->queues)
    if (!queue.idle()) call([&] { return queue.call_when_ended(Calls::wake, calls_.get()); });
  bool news = std::ranges::any_of(streams_, [&](const Stream& s) { return has_news(s); });
  for (const device::CopyQueue& queue : parts_->queues) news = news || queue.has_ended();
  return !news;
}

// Waiting for the end.

// Nothing is under way on a GPU whose context cannot be used any more.
template <class Done>
bool Port::wait_until(base::TimePoint until, Done done) noexcept {
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

bool Port::copies_ended() noexcept {
  bool ended = true;
  for (device::CopyQueue& queue : parts_->queues) ended = queue.drain() && ended;
  return ended;
}

bool Port::await_copies(base::TimePoint until) noexcept {
  return !gpu_.here() || wait_until(until, [&] { return copies_ended(); });
}

bool Port::settle(base::TimePoint until) noexcept {
  return gpu_.here() && wait_until(until, [&] {
           const bool marks_reached = std::ranges::none_of(
               parts_->events, [](const auto& e) { return e.query() == device::not_ready; });
           const bool called = calls_->left.load(std::memory_order_acquire) == 0;
           return copies_ended() && marks_reached && (called || parts_->queues.front().failed());
         });
}

}  // namespace rondo::gpu
