// SPDX-License-Identifier: Apache-2.0
#include "python/core/element.h"

#include <array>
#include <bit>
#include <span>
#include <string>

#include <rondo/types.h>

#include "python/core/error.h"

namespace rondo::python {

namespace {

constexpr std::array dtype_names = {"f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i64",
                                    "u64", "i32", "u32", "i8",   "u8",     "u16",    "i16"};
static_assert(dtype_names.size() == RONDO_I16 + 1);
constexpr std::array op_names = {"sum", "mean",    "product", "min",
                                 "max", "bit_and", "bit_or",  "bit_xor"};
static_assert(op_names.size() == RONDO_BIT_XOR + 1);
constexpr std::array collective_names = {
    "all_reduce",       "reduce",       "broadcast", "all_gather", "reduce_scatter",
    "barrier",          "gather",       "scatter",   "all_to_all", "all_gather_v",
    "reduce_scatter_v", "all_to_all_v", "send",      "receive"};
static_assert(collective_names.size() == RONDO_RECEIVE + 1);

int index_of(py::handle object, std::span<const char* const> names, const char* what) {
  if (PyLong_Check(object.ptr())) {
    const long value = PyLong_AsLong(object.ptr());
    if (value >= 0 && value < static_cast<long>(names.size())) return static_cast<int>(value);
    PyErr_Clear();
  } else if (PyUnicode_Check(object.ptr())) {
    for (std::size_t i = 0; i < names.size(); ++i)
      if (PyUnicode_CompareWithASCIIString(object.ptr(), names[i]) == 0) return static_cast<int>(i);
  }
  std::string possible;
  for (const char* name : names) possible += (possible.empty() ? "" : ", ") + std::string(name);
  refuse(py::str("{!r} is no {}; possible are: {}").format(object, what, possible));
}

// Returns "float32" for numpy.float32, numpy.dtype("f4"), torch.float32 and their names. Empty if
// there is no such name, if NumPy and torch give it to different types, or if the bytes of elements
// are in the other order.
std::string type_name(py::handle object) {
  if (PyLong_Check(object.ptr())) return {};
  const py::object order = py::getattr(object, "byteorder", py::none());
  if (order.equal(py::str(">"))) return {};
  py::object name = py::reinterpret_borrow<py::object>(object);
  for (const char* const attribute : {"name", "__name__"})
    if (!PyUnicode_Check(name.ptr()) && py::hasattr(object, attribute))
      name = object.attr(attribute);
  std::string text = py::cast<std::string>(py::str(name));
  if (text.starts_with("torch.")) text.erase(0, 6);
  return text == "float" || text == "int" || text == "byte" ? std::string() : text;
}

Element integer(std::size_t item_bytes, bool is_signed) {
  switch (item_bytes) {
    case 1:
      return {is_signed ? RONDO_I8 : RONDO_U8, 1, Element::Kind::number};
    case 2:
      return {is_signed ? RONDO_I16 : RONDO_U16, 1, Element::Kind::number};
    case 4:
      return {is_signed ? RONDO_I32 : RONDO_U32, 1, Element::Kind::number};
    case 8:
      return {is_signed ? RONDO_I64 : RONDO_U64, 1, Element::Kind::number};
    default:
      return {RONDO_U8, item_bytes, Element::Kind::opaque};
  }
}

}  // namespace

Element element_of(const char* format, std::size_t item_bytes) {
  std::string_view code = format != nullptr ? format : "B";
  static_assert(std::endian::native == std::endian::little);
  if (!code.empty() && (code.front() == '@' || code.front() == '=' || code.front() == '<'))
    code.remove_prefix(1);
  if (code == "f" && item_bytes == 4) return {RONDO_F32, 1, Element::Kind::number};
  if (code == "d" && item_bytes == 8) return {RONDO_F64, 1, Element::Kind::number};
  if (code == "e" && item_bytes == 2) return {RONDO_F16, 1, Element::Kind::number};
  if (code == "Zf" && item_bytes == 8) return {RONDO_F32, 2, Element::Kind::complex};
  if (code == "Zd" && item_bytes == 16) return {RONDO_F64, 2, Element::Kind::complex};
  if (code == "?" && item_bytes == 1) return {RONDO_U8, 1, Element::Kind::boolean};
  if (code.size() == 1 && std::string_view("bhilqn").find(code[0]) != std::string_view::npos)
    return integer(item_bytes, true);
  if (code.size() == 1 && std::string_view("BHILQNc").find(code[0]) != std::string_view::npos)
    return integer(item_bytes, false);
  return {RONDO_U8, item_bytes, Element::Kind::opaque};
}

std::string_view why_not_reduced(const Element& element, rondo_op op) {
  const bool adds = op == RONDO_SUM || op == RONDO_MEAN;
  switch (element.kind) {
    case Element::Kind::number:
      return {};
    case Element::Kind::boolean:
      return adds ? "booleans have no sum: reduce them with max (or), min (and) or bit_xor, or "
                    "convert them to integers to count"
                  : "";
    case Element::Kind::complex:
      return adds ? "" : "complex numbers can be summed and averaged only";
    case Element::Kind::opaque:
      break;
  }
  return "elements of this format can be moved, not reduced: convert them, or say dtype=";
}

rondo_dtype dtype_from(py::handle object) {
  if (const auto type = parse_dtype(type_name(object))) return static_cast<rondo_dtype>(*type);
  return static_cast<rondo_dtype>(index_of(object, dtype_names, "element type"));
}
rondo_op op_from(py::handle object) {
  return static_cast<rondo_op>(index_of(object, op_names, "reduction"));
}
rondo_collective collective_from(py::handle object) {
  return static_cast<rondo_collective>(index_of(object, collective_names, "operation"));
}

}  // namespace rondo::python
