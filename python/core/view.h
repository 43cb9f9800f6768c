// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "python/core/element.h"

namespace rondo::python {

enum class Access { read, write };

// The memory of a Python object, borrowed through the buffer protocol: contiguous in C order, and
// writable for outputs. The object keeps the memory where it is while the view lives (a bytearray
// then refuses to grow). Made and destroyed with Python's lock held.
class View {
 public:
  View() noexcept = default;  // no memory
  // Raises InvalidArgumentError, with the operation's and the argument's name, for an object
  // without such memory. dtype: what its items mean, of the same number of bytes, or of one byte
  // each.
  View(py::handle object, const char* operation, const char* argument, Access access,
       std::optional<DType> dtype);
  // A copied Py_buffer is as good as the first, if only one of the two is released.
  View(View&& other) noexcept
      : buffer_(std::exchange(other.buffer_, Py_buffer{})),
        element_(other.element_),
        items_(std::exchange(other.items_, 0)) {}
  View& operator=(View&& other) noexcept {
    std::swap(buffer_, other.buffer_);
    std::swap(element_, other.element_);
    std::swap(items_, other.items_);
    return *this;
  }
  ~View() {
    if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
  }

  explicit operator bool() const noexcept { return buffer_.obj != nullptr; }
  const Element& element() const noexcept { return element_; }
  std::size_t items() const noexcept { return items_; }
  // Elements of element().type.
  Buffer buffer() const noexcept {
    return {buffer_.buf, items_ * element_.parts, element_.type, -1};
  }

 private:
  Py_buffer buffer_{};
  Element element_{};
  std::size_t items_ = 0;
};

// The buffers of one operation.
struct Borrowed {
  View in{};
  View out{};  // none: the operation is in place, or has no output here
  std::vector<View> more{};

  Buffer input() const { return in.buffer(); }
  Buffer output() const { return (out ? out : in).buffer(); }
};

}  // namespace rondo::python
