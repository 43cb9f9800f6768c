// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "base/file_descriptor.h"

namespace rondo::base {

// Wakes a thread that polls its descriptor (an eventfd). Nothing here blocks. Thread-safe once
// made.
class Event {
 public:
  // Empty, and errno says why, if the system gives no descriptor.
  Event() noexcept : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  explicit operator bool() const noexcept { return static_cast<bool>(descriptor_); }
  // Readable from set() until clear().
  int descriptor() const noexcept { return descriptor_.get(); }
  // A full counter can only mean that the event is set already.
  void set() const noexcept {
    const std::uint64_t one = 1;
    while (::write(descriptor_.get(), &one, sizeof one) < 0 && errno == EINTR) {
    }
  }
  void clear() const noexcept {
    std::uint64_t count = 0;
    while (::read(descriptor_.get(), &count, sizeof count) < 0 && errno == EINTR) {
    }
  }
  void close() noexcept { descriptor_.reset(); }

 private:
  FileDescriptor descriptor_;
};

}  // namespace rondo::base
