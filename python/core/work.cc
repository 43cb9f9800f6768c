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
  if (ended_)
    rondo_release(pending_.request);
  else
    session_->keep(std::move(pending_));
}

Outcome Work::look(milliseconds time) {
  if (session_ == nullptr) return {};
  bool done = false;
  Outcome outcome;
  {
    const Unlocked unlocked;
    outcome = session_->poll(pending_.request, time, done);
  }
  if (!done) return {};
  ended_ = true;
  const Borrowed last = std::exchange(pending_.buffers, {});
  return outcome;
}

bool Work::wait(std::optional<milliseconds> time) {
  const auto end = time ? Clock::now() + *time : Clock::time_point::max();
  for (;;) {
    const auto left =
        ended_ ? milliseconds{0} : std::chrono::ceil<milliseconds>(end - Clock::now());
    check(look(std::clamp(left, milliseconds{0}, signal_interval)));
    if (ended_) return true;
    run_signal_handlers();
    if (Clock::now() >= end) return false;
  }
}

bool Work::done() {
  if (!ended_) look(milliseconds{0});
  return ended_;
}

py::object Work::error() {
  const Outcome outcome = look(milliseconds{0});
  return outcome.failed() ? exception_of(outcome) : py::none();
}

py::object Work::source() {
  if (!ended_) look(milliseconds{0});
  const int rank = ended_ ? rondo_source(pending_.request) : -1;
  return rank >= 0 ? py::object(py::int_(rank)) : py::none();
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
    bool done = false;
    Outcome outcome;
    {
      const Unlocked unlocked;
      outcome = session.poll(pending.request, signal_interval, done);
    }
    if (!done) continue;
    rondo_release(pending.request);
    return check(outcome);
  }
}

}  // namespace rondo::python
