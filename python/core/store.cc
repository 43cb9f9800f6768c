// SPDX-License-Identifier: Apache-2.0
#include "python/core/store.h"

#include <algorithm>
#include <string>

namespace rondo::python {

rondo_store PythonStore::for_c() {
  return {this, &PythonStore::put, &PythonStore::get};
}

template <class Function>
int PythonStore::guarded(const Function& function) {
  constexpr int failed = -1;
  const py::gil_scoped_acquire locked;
  if (PyErr_Occurred() != nullptr) return failed;  // connect() is being interrupted
  try {
    function();
    return 0;
  } catch (py::error_already_set& error) {
    if (error.matches(PyExc_TimeoutError)) return RONDO_DEADLINE_EXCEEDED;
    if (!failure_) failure_.emplace(error);
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    failure_.emplace();
  }
  return failed;
}

int PythonStore::put(void* self, const char* key, const char* value) {
  auto& store = *static_cast<PythonStore*>(self);
  return store.guarded([&] { store.store_.attr("put")(key, value); });
}

int PythonStore::get(void* self, const char* key, char* value, std::size_t capacity,
                     std::uint64_t timeout_ms) {
  auto& store = *static_cast<PythonStore*>(self);
  return store.guarded([&] {
    // Text or bytes.
    const std::string text =
        py::cast<std::string>(store.store_.attr("get")(key, static_cast<double>(timeout_ms) / 1e3));
    if (text.size() >= capacity)
      throw py::value_error("the store returned " + std::to_string(text.size()) +
                            " bytes for a key: Rondo never put so many");
    value[text.copy(value, text.size())] = '\0';
  });
}

}  // namespace rondo::python
