// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "python/core/call.h"
#include "python/core/session.h"

namespace rondo::python {

// An operation under way, or one that has ended. Thread-safe: several threads may wait for one.
// Called with Python's lock held.
class Work {
 public:
  Work() = default;  // ended, without an error
  Work(std::shared_ptr<Session> session, Pending pending);
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;
  ~Work();

  // Returns false if the operation still runs after this time; without one, waits until it ends.
  // Raises if the operation failed, each time.
  bool wait(std::optional<std::chrono::milliseconds> time);
  bool done();
  // The exception that wait() raises; None while the operation runs and after a success.
  py::object error();
  // The rank that a receive got its message from; None while it runs, after a failure and for
  // other operations.
  py::object source();

 private:
  // Drives the operation for this long, without Python's lock. Lets go of the memory if it has
  // ended.
  Outcome look(std::chrono::milliseconds time);

  std::shared_ptr<Session> session_{};
  Pending pending_{};  // its request is kept until the end, its buffers until the operation ends
  bool ended_ = true;  // guarded by Python's lock
};

// Runs one operation: start(communicator, call, request) starts it. Waits for it unless call.wait
// is false, and returns its Work. With a signal, as Ctrl-C, Python's exception for it is raised
// within a tenth of a second, and the operation goes on by itself.
template <class Start>
py::object run(const std::shared_ptr<Session>& session, Lane lane, Borrowed buffers,
               const Call& call, const Start& start);

// ---- the rest is how ----

py::object ended_work();
py::object work_of(const std::shared_ptr<Session>& session, Pending pending);
// Waits for an operation that is not done at once.
void wait_for(Session& session, Pending pending);

template <class Start>
py::object run(const std::shared_ptr<Session>& session, Lane lane, Borrowed buffers,
               const Call& call, const Start& start) {
  session->settle_kept();
  rondo_request* request = nullptr;
  Outcome outcome;
  bool open = false;
  int done = 0;
  {
    const Unlocked unlocked;
    const Session::Inside inside(*session);
    open = inside.is_open();
    if (open) {
      {
        std::unique_lock lock(session->starting(lane), std::defer_lock);
        if (!session->in_child()) lock.lock();
        outcome = Outcome::of(start(session->get(), call.for_c(), &request));
      }
      if (!outcome.failed() && call.wait)
        outcome = Outcome::of(
            rondo_test(request, static_cast<std::uint64_t>(signal_interval.count()), &done));
    }
  }
  if (!open) refuse_closed();
  check(outcome);
  if (!call.wait) return work_of(session, {request, std::move(buffers)});
  if (done == 0) wait_for(*session, {request, std::move(buffers)});
  return ended_work();
}

}  // namespace rondo::python
