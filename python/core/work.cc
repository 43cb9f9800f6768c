// SPDX-License-Identifier: Apache-2.0
#include "python/core/work.h"

#include <algorithm>
#include <utility>

namespace rondo::python {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Lets Python run its handlers of signals. Only the main thread has any.
void run_signal_handlers() {
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

}  // namespace

Work::Work(std::shared_ptr<Session> session, Pending pending)
    : session_(std::move(session)), pending_(std::move(pending)), ended_(false) {}

Work::~Work() {
  if (!ended_.load()) session_->keep(std::move(pending_));
}

// Called without Python's lock. The operation is looked at by one thread at a time.
void Work::look(milliseconds time) {
  const auto end = Clock::now() + time;
  std::unique_lock lock(mutex_, std::defer_lock);
  const bool alone = session_->in_child() || lock.try_lock_until(end);
  if (!alone || ended_.load()) return;
  int done = 0;
  const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
  Outcome outcome = session_->test(pending_.request, std::max(left, milliseconds{0}), done);
  if (done == 0) return;
  outcome_ = std::move(outcome);
  ended_.store(true);
}

// Lets go of the memory as soon as Python's lock is there again.
void Work::finish() {
  if (ended_.load()) const Borrowed last = std::exchange(pending_.buffers, {});
}

bool Work::wait(std::optional<milliseconds> time) {
  const auto end = time ? Clock::now() + *time : Clock::time_point::max();
  while (!ended_.load()) {
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    {
      const Unlocked unlocked;
      look(std::clamp(left, milliseconds{0}, signal_interval));
    }
    if (ended_.load()) break;
    run_signal_handlers();
    if (Clock::now() >= end) return false;
  }
  finish();
  check(outcome_);
  return true;
}

bool Work::done() {
  if (!ended_.load()) {
    const Unlocked unlocked;
    look(milliseconds{0});
  }
  finish();
  return ended_.load();
}

py::object Work::error() {
  return done() && outcome_.failed() ? exception_of(outcome_) : py::none();
}

// One object for all operations that have ended: nothing is allocated on the usual path. It lives
// as long as the process.
py::object ended_work() {
  static const py::handle one = py::cast(std::make_unique<Work>()).release();
  return py::reinterpret_borrow<py::object>(one);
}

py::object work_of(const std::shared_ptr<Session>& session, Pending pending) {
  return py::cast(std::make_unique<Work>(session, std::move(pending)));
}

void wait_for(Session& session, Pending pending) {
  for (;;) {
    if (PyErr_CheckSignals() != 0) {
      const py::error_already_set interrupt;
      session.keep(std::move(pending));
      throw interrupt;
    }
    int done = 0;
    Outcome outcome;
    {
      const Unlocked unlocked;
      outcome = session.test(pending.request, signal_interval, done);
    }
    if (done != 0) return check(outcome);
  }
}

}  // namespace rondo::python
