// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include <rondo/c.h>

#include "python/core/gil.h"

namespace rondo::python {

// A store of the program (rondo.Store in Python) for rondo_connect(), which calls it on the thread
// that connects, without Python's lock.
class PythonStore {
 public:
  explicit PythonStore(py::object store) : store_(std::move(store)) {}
  // Refers to this object.
  rondo_store for_c();
  // The first exception of the store other than TimeoutError; null if there was none.
  py::error_already_set* failure() { return failure_ ? &*failure_ : nullptr; }

 private:
  static int put(void* self, const char* key, const char* value);
  static int get(void* self, const char* key, char* value, std::size_t capacity,
                 std::uint64_t timeout_ms);
  template <class Function>
  int guarded(const Function& function);

  py::object store_;
  std::optional<py::error_already_set> failure_{};
};

}  // namespace rondo::python
