// SPDX-License-Identifier: Apache-2.0
#include "python/core/element.h"

#include <bit>
#include <string>

#include "python/core/error.h"

namespace rondo::python {

namespace {

// The member of an enum whose members are numbered from 0, by its number or its name.
template <class Enum>
Enum member_from(py::handle object, int count, const char* what) {
  if (PyLong_Check(object.ptr())) {
    const long value = PyLong_AsLong(object.ptr());
    if (value >= 0 && value < count) return static_cast<Enum>(value);
    PyErr_Clear();
  }
  const bool is_text = PyUnicode_Check(object.ptr());
  const auto text = is_text ? py::cast<std::string_view>(object) : std::string_view();
  std::string possible;
  for (int i = 0; i < count; ++i) {
    const std::string_view name = name_of(static_cast<Enum>(i));
    if (is_text && name == text) return static_cast<Enum>(i);
    possible.append(i == 0 ? "" : ", ").append(name);
  }
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
      return {is_signed ? DType::i8 : DType::u8, 1, Element::Kind::number};
    case 2:
      return {is_signed ? DType::i16 : DType::u16, 1, Element::Kind::number};
    case 4:
      return {is_signed ? DType::i32 : DType::u32, 1, Element::Kind::number};
    case 8:
      return {is_signed ? DType::i64 : DType::u64, 1, Element::Kind::number};
    default:
      return {DType::u8, item_bytes, Element::Kind::opaque};
  }
}

}  // namespace

Element element_of(const char* format, std::size_t item_bytes) {
  std::string_view code = format != nullptr ? format : "B";
  static_assert(std::endian::native == std::endian::little);
  if (!code.empty() && (code.front() == '@' || code.front() == '=' || code.front() == '<'))
    code.remove_prefix(1);
  if (code == "f" && item_bytes == 4) return {DType::f32, 1, Element::Kind::number};
  if (code == "d" && item_bytes == 8) return {DType::f64, 1, Element::Kind::number};
  if (code == "e" && item_bytes == 2) return {DType::f16, 1, Element::Kind::number};
  if (code == "Zf" && item_bytes == 8) return {DType::f32, 2, Element::Kind::complex};
  if (code == "Zd" && item_bytes == 16) return {DType::f64, 2, Element::Kind::complex};
  if (code == "?" && item_bytes == 1) return {DType::u8, 1, Element::Kind::boolean};
  if (code.size() == 1 && std::string_view("bhilqn").find(code[0]) != std::string_view::npos)
    return integer(item_bytes, true);
  if (code.size() == 1 && std::string_view("BHILQNc").find(code[0]) != std::string_view::npos)
    return integer(item_bytes, false);
  return {DType::u8, item_bytes, Element::Kind::opaque};
}

std::string_view why_not_reduced(const Element& element, ReduceOp op) {
  const bool adds = op == ReduceOp::sum || op == ReduceOp::mean;
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

DType dtype_from(py::handle object) {
  if (const auto type = parse_dtype(type_name(object))) return *type;
  return member_from<DType>(object, dtype_count, "element type");
}
ReduceOp op_from(py::handle object) {
  return member_from<ReduceOp>(object, reduce_op_count, "reduction");
}
Collective collective_from(py::handle object) {
  return member_from<Collective>(object, collective_count, "operation");
}

}  // namespace rondo::python
