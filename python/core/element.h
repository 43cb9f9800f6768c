// SPDX-License-Identifier: Apache-2.0
//
// Translates Python's names of elements and reductions into Rondo's.
#pragma once

#include <rondo/types.h>

#include <cstddef>
#include <string_view>

#include "python/core/gil.h"

namespace rondo::python {

// One element of a Python buffer is `parts` elements of `type` for Rondo. Only some can be reduced.
struct Element {
  enum class Kind { number, boolean, complex, opaque };  // opaque elements move as bytes
  DType type = DType::u8;
  std::size_t parts = 1;
  Kind kind = Kind::opaque;

  std::size_t bytes() const { return size_of(type) * parts; }
  bool operator==(const Element&) const = default;
};

// Reads a format of Python's module struct, as buffers have it. null: unsigned bytes.
Element element_of(const char* format, std::size_t item_bytes);
// Returns what keeps the sum (or another reduction) of such elements from having a meaning; empty
// if it has one. The library itself refuses bit operations on floats.
std::string_view why_not_reduced(const Element& element, ReduceOp op);

// These take a member of the enum in Python, or its name in lower case ("f32", "sum",
// "all_reduce"). Anything else raises.
DType dtype_from(py::handle object);
ReduceOp op_from(py::handle object);
Collective collective_from(py::handle object);

}  // namespace rondo::python
