// SPDX-License-Identifier: Apache-2.0
#include "python/torch/group_session.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/exception.h>
#include <algorithm>
#include <chrono>

#include "python/torch/interrupts.h"

namespace rondo::python {

namespace {

// The error of an operation that Ctrl-C has ended: KeyboardInterrupt on the main thread, a
// DistBackendError elsewhere and in later calls. torch asks for the type when it raises it in
// Python.
class Interrupted final : public torch::PyTorchError {
 public:
  using PyTorchError::PyTorchError;
  PyObject* python_type() override {
    if (PyErr_CheckSignals() == 0)
      return py::module_::import("torch.distributed").attr("DistBackendError").ptr();
    PyErr_Clear();
    return PyExc_KeyboardInterrupt;
  }
};

}  // namespace

void GroupSession::close_all() noexcept {
  for (const auto& session : Opened<GroupSession>::all()) session->close();
  Finishers::join_all();
  Interrupts::stop();
}

GroupSession::~GroupSession() {
  close();
  // A child leaves both alone: neither threads nor locks of its parent work there.
  if (!session_.in_child()) return;
  static_cast<void>(finishers_.release());
  static_cast<void>(sides_.release());
}

// Threads that wait look now and then whether the group is being closed: they cannot be woken
// without an abort, which would end operations on other ranks.
void GroupSession::close() noexcept {
  if (session_.in_child() || session_.has_closed()) return;
  const Unlocked others_run(PyGILState_Check() != 0);  // threads that end here may wait for it
  std::vector<rondo::Work> last;
  {
    const std::lock_guard lock(relied_on_mutex_);
    last.swap(relied_on_);
  }
  for (const rondo::Work& work : last) await_aborted(work);
  if (!session_.close()) return;
  finishers_->stop();
  sides_->clear();
}

bool GroupSession::await(const rondo::Work& work, TimePoint until) {
  refuse_child();
  return session_.await(work, until, [this] { run_handlers(); });
}

// Does not look for signals.
void GroupSession::await_aborted(const rondo::Work& work) {
  while (!session_.await(work, std::chrono::steady_clock::now() + signal_interval, [] {})) {
  }
}

void GroupSession::run_handlers() {
  try {
    run_signal_handlers();
  } catch (const py::error_already_set& error) {
    abort(exception_name(error));
    throw;
  }
}

bool GroupSession::join(const rondo::Work& work, void* stream) {
  refuse_child();
  if (!session_.drive(
          work, TimePoint::max(),
          [&](TimePoint::duration time) { return work.join_for(stream, time); },
          [this] { run_handlers(); }))
    return false;
  if (work.done()) return true;
  const std::lock_guard lock(relied_on_mutex_);
  std::erase_if(relied_on_, [](const rondo::Work& one) { return one.done(); });
  relied_on_.push_back(work.share());
  return true;
}

void GroupSession::await_all(const std::vector<rondo::Work>& works) {
  try {
    for (const rondo::Work& work : works) await(work, TimePoint::max());
  } catch (const py::error_already_set&) {
    for (const rondo::Work& work : works) await_aborted(work);
    throw;
  }
  for (const rondo::Work& work : works)
    if (work.error()) std::rethrow_exception(error(work));
}

void GroupSession::leave(const std::vector<rondo::Work>& works) {
  refuse_child();
  const Session::Inside inside(session_);
  for (const rondo::Work& work : works) work.leave();
}

// Programs look for the word timeout in torch's messages.
void GroupSession::fail(const std::string& message, std::error_code code) const {
  if (interrupted_.load()) throw Interrupted("rondo: " + message + who_);
  const char* more = code == Errc::deadline_exceeded ? "; the timeout has passed" : "";
  if (code == Errc::mismatch && starters_.load() > 1)
    more =
        "; several threads of this rank have called this group, and their order may differ "
        "between ranks: give each thread a group of its own, made by new_group()";
  TORCH_CHECK_WITH(DistBackendError, false, "rondo: ", message, more, who_);
}

std::exception_ptr GroupSession::error(const rondo::Work& failed) {
  tell_abort_hooks();
  try {
    fail(failed.message(), failed.error());
  } catch (...) {
    return std::current_exception();
  }
}

void GroupSession::refuse_child() const {
  if (session_.in_child())
    fail("a forked child cannot use the process group of its parent: make a group there");
}

void GroupSession::begin_sleep() {
  sleeps_.fetch_add(1);
  Interrupts::watch(&interrupt_sleep);
}

void GroupSession::interrupt_sleep() {
  for (const auto& session : Opened<GroupSession>::all()) {
    if (session->sleeps_.load() == 0) continue;
    session->interrupted_ = true;
    session->abort("KeyboardInterrupt");
  }
}

}  // namespace rondo::python
