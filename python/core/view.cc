// SPDX-License-Identifier: Apache-2.0
#include "python/core/view.h"

#include <string>
#include <string_view>

#include "python/core/error.h"

namespace rondo::python {

namespace {

// The remedy for an object that has no buffer, for the error's text.
std::string instead_of(py::handle object) {
  const auto has = [&](const char* name) { return py::hasattr(object, name); };
  int device = has("__cuda_array_interface__") ? -1 : 1;  // as DLPack counts them
  if (has("__dlpack_device__"))
    device = py::int_(object.attr("__dlpack_device__")()[py::int_(0)]).cast<int>();
  if (device != 1 && device != 3)  // neither ordinary nor pinned host memory
    return "is not in host memory: copy it there (PyTorch: x = tensor.cpu().numpy()), and for an "
           "output copy the result back";
  const std::string module = py::str(py::type::of(object).attr("__module__"));
  if (module == "torch" || module.starts_with("torch."))
    return "has no buffer: give tensor.detach().numpy(), which shares its memory (bfloat16: "
           "tensor.detach().view(torch.int16).numpy() with dtype=\"bf16\")";
  if (has("__dlpack__")) return "has no buffer: give numpy.from_dlpack() of it";
  if (has("__array__")) return "has no buffer: give numpy.asarray() of it";
  return "has no buffer: give a NumPy array, a bytearray, a memoryview or the like";
}

// Raises an error that explains why the object gave no view, in place of Python's error.
[[noreturn]] void explain(py::handle object, const std::string& where, const std::string& name,
                          Access access) {
  PyErr_Clear();
  const std::string type = py::str(py::type::of(object).attr("__name__"));
  if (PyObject_CheckBuffer(object.ptr()) == 0)
    refuse(where + " is a " + type + ", which " + instead_of(object));
  Py_buffer any{};
  if (PyObject_GetBuffer(object.ptr(), &any, PyBUF_STRIDED_RO) != 0) throw py::error_already_set();
  const bool is_contiguous = PyBuffer_IsContiguous(&any, 'C') != 0, is_scalar = any.ndim == 0;
  PyBuffer_Release(&any);
  if (!is_contiguous)
    refuse(where + " is not contiguous in C order: give " +
           (access == Access::read ? "numpy.ascontiguousarray(" + name + ")"
                                   : "copy = numpy.ascontiguousarray(" + name +
                                         "), and after the call write " + name + "[...] = copy"));
  if (is_scalar)
    refuse(where + " is a " + type + ", which cannot change: give numpy.array() of it");
  refuse(where + " is read-only: an output needs a writable buffer");
}

// Whether items have pointers to objects of this process. Names of fields stand between colons.
bool has_objects(std::string_view format) {
  bool in_name = false;
  for (const char letter : format) {
    if (letter == ':') in_name = !in_name;
    if (letter == 'O' && !in_name) return true;
  }
  return false;
}

// Likewise, for types of NumPy without a format, such as strings of any length.
bool refers_to_objects(py::handle object) {
  const py::object type = py::getattr(object, "dtype", py::none());
  return py::getattr(type, "hasobject", py::bool_(false)).equal(py::bool_(true));
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
           std::optional<DType> dtype) {
  const auto where = [&] { return std::string(operation) + ": " + argument; };
  bool has_format = false;
  if (!get(object, buffer_, access, has_format)) explain(object, where(), argument, access);
  if (has_format ? buffer_.format != nullptr && has_objects(buffer_.format)
                 : refers_to_objects(object)) {
    PyBuffer_Release(&buffer_);
    refuse(where() +
           " has Python objects as items, which have no meaning on other ranks: give numbers, or "
           "the bytes of pickle.dumps()");
  }
  const auto bytes = static_cast<std::size_t>(buffer_.len),
             item = static_cast<std::size_t>(buffer_.itemsize);
  element_ = has_format ? element_of(buffer_.format, item)
                        : Element{DType::u8, item, Element::Kind::opaque};
  if (dtype) {
    const std::size_t size = size_of(*dtype);
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
