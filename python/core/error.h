// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <rondo/c.h>

#include "python/core/gil.h"

namespace rondo::python {

// How a call of the C API ended. The text is copied at once: the next failure on this thread
// replaces it.
struct Outcome {
  rondo_status status = RONDO_OK;
  std::string message{};

  static Outcome of(rondo_status status) {
    return status == RONDO_OK ? Outcome{} : Outcome{status, rondo_message()};
  }
  bool failed() const noexcept { return status != RONDO_OK; }
};

// Makes the exception object for a failure: an instance of the class in rondo/_errors.py.
py::object exception_of(const Outcome& outcome);
// Throws that exception into Python. Both need Python's lock.
[[noreturn]] void raise(const Outcome& outcome);
// Raises unless the outcome is a success.
inline void check(const Outcome& outcome) {
  if (outcome.failed()) raise(outcome);
}
// Raises InvalidArgumentError.
[[noreturn]] void refuse(const std::string& message);

}  // namespace rondo::python
