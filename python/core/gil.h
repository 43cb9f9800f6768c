// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cxxabi.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

namespace rondo::python {

namespace py = pybind11;

// Gives up Python's lock while this object lives. A daemon thread that outlives the interpreter
// never gets the lock again: Python before 3.14 then unwinds the thread, which would run
// destructors that need the lock. Such a thread sleeps here for the rest of the process, as with
// later Pythons.
class Unlocked {
 public:
  Unlocked() : Unlocked(true) {}
  // For functions that are called with and without the lock. locked: whether this thread has it.
  explicit Unlocked(bool locked) : state_(locked ? PyEval_SaveThread() : nullptr) {}
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() {
    if (state_ == nullptr) return;
    try {
      PyEval_RestoreThread(state_);
    } catch (abi::__forced_unwind&) {
      for (;;) ::pause();
    }
  }

 private:
  PyThreadState* state_;
};

}  // namespace rondo::python
