// SPDX-License-Identifier: Apache-2.0
#include "python/core/call.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "python/core/element.h"
#include "python/core/error.h"

namespace rondo::python {

namespace {

using std::chrono::milliseconds;

bool is(py::handle text, const char* name) {
  return PyUnicode_CompareWithASCIIString(text.ptr(), name) == 0;
}

bool truth_of(py::handle value) {
  const int truth = PyObject_IsTrue(value.ptr());
  if (truth < 0) throw py::error_already_set();
  return truth != 0;
}

const char* text_of(py::handle value) {
  const char* const text = PyUnicode_Check(value.ptr()) ? PyUnicode_AsUTF8(value.ptr()) : nullptr;
  if (text == nullptr) {
    PyErr_Clear();
    refuse(py::str("label is {!r}: give text").format(value));
  }
  return text;
}

double scale_of(py::handle value) {
  const double scale = PyFloat_AsDouble(value.ptr());
  if (scale == -1.0 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return scale;
}

void read_keyword(Call& call, py::handle name, py::handle value) {
  if (is(name, "wait")) {
    call.wait = truth_of(value);
  } else if (value.is_none()) {
    // As though it was not given.
  } else if (is(name, "dtype")) {
    call.dtype = dtype_from(value);
  } else if (is(name, "deadline")) {
    call.options.deadline = std::max(milliseconds_from(value, "deadline"), milliseconds{1});
  } else if (is(name, "urgent")) {
    call.options.priority = truth_of(value) ? Priority::urgent : Priority::bulk;
  } else if (is(name, "unattended")) {
    call.options.unattended = truth_of(value);
  } else if (is(name, "scale")) {
    call.options.scale = scale_of(value);
  } else if (is(name, "input_scale")) {
    call.options.input_scale = scale_of(value);
  } else if (is(name, "label")) {
    call.options.tag = text_of(value);
  } else {
    throw py::type_error(py::str("operations have no argument {!r}; possible are: dtype, wait, "
                                 "deadline, urgent, scale, input_scale, label, unattended")
                             .format(name));
  }
}

}  // namespace

milliseconds milliseconds_from(py::handle seconds, const char* what) {
  const double value = PyFloat_AsDouble(seconds.ptr());
  const bool is_number = PyErr_Occurred() == nullptr;
  if (!is_number) PyErr_Clear();
  if (!is_number || !(value >= 0))
    refuse(py::str("{} is {!r}: give seconds, 0 or more").format(what, seconds));
  return milliseconds{static_cast<std::int64_t>(std::ceil(std::min(value * 1e3, 1e12)))};
}

Call call_from(const py::dict& keywords) {
  Call call;
  for (const auto& [name, value] : keywords) read_keyword(call, name, value);
  return call;
}

}  // namespace rondo::python
