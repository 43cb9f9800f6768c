// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>

#include "python/core/session.h"

namespace rondo::python {

// Memory from rondo_allocate(), as a writable buffer of bytes. It may outlive its communicator.
class Memory {
 public:
  Memory(Session& session, std::size_t bytes);  // raises
  void* data() const noexcept { return rondo_data(memory_.get()); }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  struct Free {
    void operator()(rondo_memory* memory) const noexcept { rondo_free(memory); }
  };
  std::unique_ptr<rondo_memory, Free> memory_{};
  std::size_t bytes_;
};

// Memory of a Python object that the transports know until close().
class Registration {
 public:
  Registration(Session& session, py::handle object);  // raises
  void close();

 private:
  struct End {
    void operator()(rondo_registration* one) const noexcept { rondo_deregister(one); }
  };
  View view_;  // the registration ends before it does
  std::unique_ptr<rondo_registration, End> registration_{};
};

}  // namespace rondo::python
