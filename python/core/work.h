// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/work.h>

#include <chrono>
#include <memory>
#include <optional>

#include "python/core/call.h"
#include "python/core/session.h"
#include "python/core/view.h"

namespace rondo::python {

// An operation, with the memory that it uses.
struct Pending {
  rondo::Work work{};
  Borrowed buffers{};
};

// Lets go of the memory of operations that nobody waits for and that have ended. With Python's
// lock, like all that follows.
void settle_kept();

// An operation under way, or one that has ended. Thread-safe: several threads may wait for one.
class Work {
 public:
  Work() = default;  // ended, without an error
  // Starts an operation by start(communicator, buffers, options). Waits for it unless call.wait is
  // false. With a signal, as Ctrl-C, Python's exception for it is raised within a tenth of a
  // second, and the operation goes on by itself.
  template <class Start>
  Work(const std::shared_ptr<Session>& session, Lane lane, Borrowed&& buffers, const Call& call,
       const Start& start)
      : Work(session, std::move(buffers)) {
    settle_kept();
    {
      const Unlocked unlocked;
      pending_.work = session_->start(lane, [&](Communicator& communicator) {
        return start(communicator, pending_.buffers, call.options);
      });
      ended_ = false;
      if (!call.wait) return;
      if (!drive(Session::TimePoint::max()))
        throw Error(Errc::system, "the wait for an operation failed: it may still run");
    }
    end();
    check();
  }
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
  // Not started yet.
  Work(const std::shared_ptr<Session>& session, Borrowed&& buffers)
      : session_(session), pending_{{}, std::move(buffers)} {}
  // Returns whether the operation has ended by then. Without Python's lock.
  bool drive(Session::TimePoint until);
  // Returns whether it has ended by then, and notes it.
  bool look(Session::TimePoint until);
  // Lets go of the memory of the operation, which has ended.
  void end();
  // Raises if the operation, which has ended, has failed.
  void check() const;

  std::shared_ptr<Session> session_{};
  Pending pending_{};  // its buffers are kept until the operation ends
  bool ended_ = true;  // guarded by Python's lock
};

}  // namespace rondo::python
