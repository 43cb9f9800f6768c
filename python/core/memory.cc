// SPDX-License-Identifier: Apache-2.0
#include "python/core/memory.h"

#include <algorithm>

namespace rondo::python {

Memory::Memory(Session& session, std::size_t bytes) : bytes_(bytes) {
  rondo_memory* memory = nullptr;
  // A buffer of Python needs an address even if it is empty.
  check(call_inside(session, [&](rondo_communicator* c) {
    return rondo_allocate(c, std::max<std::size_t>(bytes, 1), &memory);
  }));
  memory_.reset(memory);
}

Registration::Registration(Session& session, py::handle object)
    : view_(object, "register", "data", Access::write, RONDO_U8) {
  rondo_registration* registration = nullptr;
  check(call_inside(session, [&](rondo_communicator* c) {
    return rondo_register(c, view_.data(), view_.count(), &registration);
  }));
  registration_.reset(registration);
}

void Registration::close() {
  registration_.reset();
  const View last = std::move(view_);
}

}  // namespace rondo::python
