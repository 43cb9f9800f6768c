// SPDX-License-Identifier: Apache-2.0
//
// Signals of Python, such as Ctrl-C, while its main thread waits for other ranks in C++. Python's C
// handler only notes a signal. Its handler in Python runs when the main thread asks for it.
#pragma once

#include <unistd.h>

#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "python/core/gil.h"

namespace rondo::python {

// How often a wait looks for signals.
inline constexpr std::chrono::milliseconds signal_interval{50};

// Runs Python's handlers of the signals that have come, if this is the main thread. Throws what one
// raises, such as KeyboardInterrupt.
inline void run_signal_handlers() {
  if (::gettid() != ::getpid()) return;
  const py::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// "KeyboardInterrupt".
inline std::string exception_name(const py::error_already_set& error) {
  const py::gil_scoped_acquire locked;
  return py::cast<std::string>(error.type().attr("__name__"));
}

// The exception that a handler has raised on this thread below Rondo, which passes only errors of
// its own.
inline std::exception_ptr& raised_below() {
  static thread_local std::exception_ptr raised;
  return raised;
}
// For Options::interrupted.
inline bool handler_raises() {
  try {
    run_signal_handlers();
    return false;
  } catch (const py::error_already_set&) {
    raised_below() = std::current_exception();
    return true;
  }
}
// Returns function(), or throws what a handler has raised meanwhile.
template <class Function>
auto interruptible(const Function& function) {
  raised_below() = nullptr;
  const auto rethrow = [] {
    if (const auto raised = std::exchange(raised_below(), nullptr)) std::rethrow_exception(raised);
  };
  try {
    auto result = function();
    rethrow();
    return result;
  } catch (...) {
    rethrow();
    throw;
  }
}

}  // namespace rondo::python
