// SPDX-License-Identifier: Apache-2.0
#include "python/core/view.h"

#include <string>

#include "python/core/error.h"

namespace rondo::python {

namespace {

// Says why the object gave no view, after Python has.
[[noreturn]] void explain(py::handle object, const std::string& where) {
  PyErr_Clear();
  const std::string type = py::str(py::type::of(object).attr("__name__"));
  if (PyObject_CheckBuffer(object.ptr()) == 0)
    refuse(where + " is a " + type +
           ", which has no buffer: give a NumPy array, a bytearray, a memoryview or the like");
  Py_buffer any{};
  if (PyObject_GetBuffer(object.ptr(), &any, PyBUF_STRIDED_RO) != 0) throw py::error_already_set();
  const bool is_contiguous = PyBuffer_IsContiguous(&any, 'C') != 0;
  PyBuffer_Release(&any);
  if (!is_contiguous)
    refuse(where +
           " is not contiguous in C order: copy it first (numpy.ascontiguousarray), and for an "
           "output copy the result back");
  refuse(where + " is read-only: an output needs a writable buffer");
}

// Some types of NumPy (dates, bfloat16 of other packages) have memory and no format for it.
bool get(py::handle object, Py_buffer& buffer, Access access, bool& has_format) {
  const int flags = PyBUF_C_CONTIGUOUS | (access == Access::write ? PyBUF_WRITABLE : 0);
  has_format = PyObject_GetBuffer(object.ptr(), &buffer, flags | PyBUF_FORMAT) == 0;
  if (has_format) return true;
  PyErr_Clear();
  buffer = {};
  if (PyObject_GetBuffer(object.ptr(), &buffer, flags) == 0) return true;
  buffer = {};
  return false;
}

}  // namespace

View::View(py::handle object, const char* operation, const char* argument, Access access,
           std::optional<rondo_dtype> dtype) {
  const auto where = [&] { return std::string(operation) + ": " + argument; };
  bool has_format = false;
  if (!get(object, buffer_, access, has_format)) explain(object, where());
  const auto bytes = static_cast<std::size_t>(buffer_.len),
             item = static_cast<std::size_t>(buffer_.itemsize);
  element_ = has_format ? element_of(buffer_.format, item)
                        : Element{RONDO_U8, item, Element::Kind::opaque};
  if (dtype) {
    const std::size_t size = rondo_size_of(*dtype);
    if ((item != size && item != 1) || bytes % size != 0) {
      PyBuffer_Release(&buffer_);
      refuse(where() + " has " + std::to_string(bytes) + " bytes in items of " +
             std::to_string(item) + ": with this dtype items have " + std::to_string(size) +
             " bytes, or one");
    }
    element_ = {*dtype, 1, Element::Kind::number};
  }
  items_ = element_.bytes() != 0 ? bytes / element_.bytes() : 0;
}

}  // namespace rondo::python
