// SPDX-License-Identifier: Apache-2.0
#include "executor.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <map>

#include "call.h"
#include "handles.h"
#include "settings.h"

namespace fake {
namespace {

using rondo::base::sleep_on;
using rondo::base::wake_all;

constexpr std::chrono::seconds no_hurry{1};
constexpr std::chrono::milliseconds often{100};

}  // namespace

Executor::Executor() : random_(settings().seed) {}

StreamHandle Executor::add_stream(ContextHandle context, unsigned flags, bool is_default) {
  const std::lock_guard lock(mutex_);
  rondo::device::StreamObject& stream = streams_.emplace_back();
  stream.context = context;
  stream.number = static_cast<unsigned>(streams_.size());
  stream.flags = flags;
  stream.is_default = is_default;
  live_.push_back(&stream);
  return &stream;
}

bool Executor::is_stream(StreamHandle stream) {
  const std::lock_guard lock(mutex_);
  return std::any_of(live_.begin(), live_.end(),
                     [&](StreamHandle each) { return each == stream && !each->destroyed; });
}

Status Executor::destroy_stream(StreamHandle stream) {
  {
    const std::lock_guard lock(mutex_);
    stream->destroyed = true;
    stream->capturing = false;
    if (!has_thread_) std::erase(live_, stream);  // it has never had work
  }
  wake_all(wanted_);
  return 0;
}

bool Executor::start_thread() {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int failed = ::pthread_create(
      &thread, nullptr,
      [](void* self) -> void* {
        static_cast<Executor*>(self)->run();
        return nullptr;
      },
      this);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failed == 0) ::pthread_detach(thread);
  return failed == 0;
}

Status Executor::enqueue(StreamHandle stream, std::unique_ptr<Work> work) {
  bool is_capturing = false;
  if (const Status status = capture_status(stream, &is_capturing); status != 0) return status;
  if (is_capturing) return capture_unsupported;
  {
    const Seen seen;
    work->hand_over();
  }
  {
    const std::lock_guard lock(mutex_);
    if (!has_thread_) has_thread_ = start_thread();
    if (!has_thread_) return rondo::device::out_of_memory;
    // The GPU may have failed since the call began. Then what this work waits for has been dropped.
    if (const Status status = sticky_error(stream->context); status != 0) return status;
    if (stream->work.empty()) work->not_before = draw_start();
    stream->work.push_back(std::move(work));
    ++stream->enqueued;
  }
  wake_all(wanted_);
  return 0;
}

Status Executor::capture_status(StreamHandle stream, bool* is_capturing) {
  const std::lock_guard lock(mutex_);
  *is_capturing = stream->capturing;
  if (stream->is_default)
    for (const StreamHandle each : live_)
      if (each->capturing && each->flags == 0 && each->context == stream->context)
        return capture_implicit;
  return 0;
}

Executor::Clock::time_point Executor::draw_start() {
  return Clock::now() + std::chrono::microseconds(random_() % (settings().delay_us + 1));
}

// Called with the lock. Returns a stream whose first work can run now, drawn at random, or null and
// when there may be one.
StreamHandle Executor::choose(Clock::time_point* next) {
  const auto now = Clock::now();
  std::vector<StreamHandle> ready;
  for (const StreamHandle each : live_) {
    if (each->work.empty() || all_held_ || each->held || !each->work.front()->is_ready()) continue;
    if (each->work.front()->not_before <= now) {
      ready.push_back(each);
    } else {
      *next = std::min(*next, each->work.front()->not_before);
    }
  }
  return ready.empty() ? nullptr : ready[random_() % ready.size()];
}

// The executor is quiet; the hands of the streams do what TSan sees.
void Executor::run() {
  const Quiet quiet;
  on_executor() = true;
  for (;;) {
    const unsigned seen = wanted_.load();
    StreamHandle stream = nullptr;
    auto next = Clock::now() + no_hurry;
    {
      const std::lock_guard lock(mutex_);
      for (const Break& each : breaks_) make_sticky(each.context, each.status);
      if (!breaks_.empty()) wake_all(ended_);
      breaks_.clear();
      std::erase_if(live_, [](StreamHandle each) {
        if (!each->destroyed || !each->work.empty()) return false;
        each->hand.reset();
        return true;
      });
      stream = choose(&next);
      if (stream != nullptr && !stream->has_begun && work_until_failure_ != 0 &&
          --work_until_failure_ == 0) {
        make_sticky(stream->context, work_failure_);
        wake_all(ended_);
        continue;
      }
      if (stream != nullptr) stream->has_begun = stream->is_running = true;
    }
    if (stream == nullptr) {
      const auto wait = next - Clock::now();
      if (wait > wait.zero()) sleep_on(wanted_, seen, wait);
    } else {
      run_one(stream);
    }
  }
}

void Executor::run_one(StreamHandle stream) {
  if (stream->hand == nullptr) stream->hand = std::make_unique<Hand>();
  Work* work = nullptr;
  unsigned long end = 0;
  {
    const std::lock_guard lock(mutex_);
    work = stream->work.front().get();
    end = stream->ended + 1;
  }
  stream->hand->run([this, stream, work, end] {
    work->take_over();
    (void)let_go_.load(std::memory_order_acquire);
    Status status = 0;
    const bool has_ended = work->run(&status);
    if (has_ended) stream->last_end.store(end, std::memory_order_release);
    const Quiet quiet;
    stream->has_ended = has_ended;
    stream->status = status;
  });
  const std::lock_guard lock(mutex_);
  stream->is_running = false;
  if (stream->has_ended) end_first(stream);
  if (stream->status != 0) make_sticky(stream->context, stream->status);
  wake_all(ended_);
}

// Called with the lock.
void Executor::end_first(StreamHandle stream) {
  stream->work.pop_front();
  stream->has_begun = false;
  ++stream->ended;
  if (!stream->work.empty()) stream->work.front()->not_before = draw_start();
}

// Called with the lock. TSan sees that all work of the context that has run happens before a call
// that returns the status: each stream releases the word before it changes.
void Executor::make_sticky(ContextHandle context, Status status) {
  if (status == 0 || context->sticky.load() == 0) {
    for (const StreamHandle each : live_)
      if (each->context == context && each->hand != nullptr)
        each->hand->run([context] { context->sticky.fetch_add(0, std::memory_order_release); });
    context->sticky.exchange(status);
  }
  drop_work(context, status);
}

void Executor::drop_work(ContextHandle context, Status status) {
  for (const StreamHandle each : live_)
    while (each->context == context && !each->work.empty()) {
      each->work.front()->drop(status);
      end_first(each);
    }
}

void Executor::drain(const char* function, ContextHandle context) {
  std::vector<std::pair<StreamHandle, unsigned long>> until;
  {
    const std::lock_guard lock(mutex_);
    for (const StreamHandle each : live_)
      if (context == nullptr || each->context == context) until.emplace_back(each, each->enqueued);
  }
  const auto deadline = Clock::now() + std::chrono::seconds(settings().hang_s);
  for (;;) {
    const unsigned seen = ended_.load();
    {
      const std::lock_guard lock(mutex_);
      std::erase_if(until, [](const auto& each) { return each.first->ended >= each.second; });
      if (until.empty()) return;
      if (Clock::now() > deadline) {
        const StreamHandle stream = until.front().first;
        stop_test(std::string(function) + " has waited " + std::to_string(settings().hang_s) +
                  " s for stream " + std::to_string(stream->number) + " of GPU " +
                  std::to_string(stream->context->ordinal) +
                  (stream->held || all_held_ ? ", which a test holds" : ""));
      }
    }
    sleep_on(ended_, seen, often);
  }
}

void Executor::settle() {
  drain("settle", nullptr);
  see_all_work();
}

// The caller sees the work that has ended.
void Executor::see_all_work() {
  std::vector<StreamHandle> all;
  {
    const std::lock_guard lock(mutex_);
    for (auto& each : streams_) all.push_back(&each);
  }
  for (const StreamHandle each : all) {
    const Seen seen;
    (void)each->last_end.load(std::memory_order_acquire);
  }
}

void Executor::hold(StreamHandle stream) {
  {
    const std::lock_guard lock(mutex_);
    (stream == nullptr ? all_held_ : stream->held) = true;
  }
  // A piece that runs goes on to its end; afterwards nothing of the stream runs.
  const auto is_running = [&](StreamHandle each) {
    return each->is_running && (stream == nullptr || each == stream);
  };
  const auto deadline = Clock::now() + std::chrono::seconds(settings().hang_s);
  for (bool running = !on_executor(); running;) {
    const unsigned seen = ended_.load();
    {
      const std::lock_guard lock(mutex_);
      running = std::any_of(live_.begin(), live_.end(), is_running);
    }
    if (running && Clock::now() > deadline)
      stop_test("hold: a piece of work has not ended for " + std::to_string(settings().hang_s) +
                " s");
    if (running) sleep_on(ended_, seen, often);
  }
  see_all_work();
}

void Executor::let_go(StreamHandle stream) {
  {
    const Seen seen;
    let_go_.fetch_add(1, std::memory_order_release);
  }
  {
    const std::lock_guard lock(mutex_);
    (stream == nullptr ? all_held_ : stream->held) = false;
  }
  wake_all(wanted_);
}

void Executor::capture(StreamHandle stream, bool on) {
  const std::lock_guard lock(mutex_);
  stream->capturing = on;
}

void Executor::break_context(ContextHandle context, Status status) {
  {
    const std::lock_guard lock(mutex_);
    if (!has_thread_) has_thread_ = start_thread();
    breaks_.push_back({context, status});
  }
  wake_all(wanted_);
  for (;;) {
    const unsigned seen = ended_.load();
    {
      const std::lock_guard lock(mutex_);
      if (breaks_.empty()) return;
    }
    sleep_on(ended_, seen, often);
  }
}

void Executor::fail_work(unsigned nth, Status status) {
  const std::lock_guard lock(mutex_);
  work_until_failure_ = nth;
  work_failure_ = status;
}

void Executor::clear() {
  {
    const std::lock_guard lock(mutex_);
    work_until_failure_ = 0;
    for (const StreamHandle each : live_) each->held = each->capturing = false;
  }
  let_go(nullptr);
}

Executor& executor() {
  static Executor& all = *new Executor;
  return all;
}

StreamHandle stream_of(StreamHandle handle, ContextHandle context) {
  if (handle == rondo::device::per_thread_stream) {
    thread_local std::map<ContextHandle, StreamHandle> own;
    StreamHandle& stream = own[context];
    if (stream == nullptr) stream = executor().add_stream(context, 0, false);
    return stream;
  }
  if (handle != nullptr && handle != rondo::device::legacy_stream)
    return executor().is_stream(handle) ? handle : nullptr;
  const std::lock_guard lock(context->mutex);
  if (context->legacy == nullptr) context->legacy = executor().add_stream(context, 0, true);
  return context->legacy;
}

}  // namespace fake
