// SPDX-License-Identifier: Apache-2.0
#include "python/core/error.h"

namespace rondo::python {

py::object exception_of(const Outcome& outcome) {
  return py::module_::import("rondo._errors")
      .attr("exception_of")(static_cast<int>(outcome.status), outcome.message);
}

void raise(const Outcome& outcome) {
  const py::object exception = exception_of(outcome);
  PyErr_SetObject(py::type::of(exception).ptr(), exception.ptr());
  throw py::error_already_set();
}

void refuse(const std::string& message) {
  raise({RONDO_INVALID_ARGUMENT, message});
}

}  // namespace rondo::python
