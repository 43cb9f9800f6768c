// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/options.h>

#include <chrono>
#include <optional>

#include "python/core/gil.h"

namespace rondo::python {

// The keyword arguments that every operation has: see rondo.Call in rondo/_communicator.py.
struct Call {
  OpOptions options{};  // its tag points into the dict
  bool wait = true;
  std::optional<DType> dtype{};
};

// Raises TypeError for a keyword that does not exist, and InvalidArgumentError for values that
// cannot be. The dict must outlive the result.
Call call_from(const py::dict& keywords);

// Seconds from Python, rounded up. `what` names them in the message when they are negative or no
// number.
std::chrono::milliseconds milliseconds_from(py::handle seconds, const char* what);

}  // namespace rondo::python
