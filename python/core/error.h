// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/error.h>

#include <string>

#include "python/core/gil.h"

namespace rondo::python {

// Makes the exception object for a failure: an instance of the class in rondo/_errors.py.
inline py::object exception_of(const Error& error) {
  const bool ours = error.code().category() == error_category();
  return py::module_::import("rondo._errors")
      .attr("exception_of")(ours ? error.code().value() : static_cast<int>(Errc::system),
                            error.what());
}

// Raises InvalidArgumentError.
[[noreturn]] inline void refuse(const std::string& message) {
  throw Error(Errc::invalid_argument, message);
}

}  // namespace rondo::python
