// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include <rondo/c.h>

#include "python/core/gil.h"

namespace rondo::python {

// The keyword arguments that every operation has: see rondo.Call in rondo/_communicator.py.
struct Call {
  rondo_call options{};  // its tag points into the dict
  bool has_options = false;
  bool wait = true;
  std::optional<rondo_dtype> dtype{};

  const rondo_call* for_c() const noexcept { return has_options ? &options : nullptr; }
};

// Raises TypeError for a keyword that does not exist, and InvalidArgumentError for values that
// cannot be. The dict must outlive the result.
Call call_from(const py::dict& keywords);

// Seconds from Python as milliseconds, rounded up. `what` names them in the message when they are
// negative or no number.
std::uint64_t milliseconds_from(py::handle seconds, const char* what);

}  // namespace rondo::python
