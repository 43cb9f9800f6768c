// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "base/file_descriptor.h"

namespace rondo::testing {

// Captures what this program writes to standard error while the object lives.
class StandardError {
 public:
  StandardError()
      : before_(::dup(STDERR_FILENO)), file_(::memfd_create("standard error", MFD_CLOEXEC)) {
    ::dup2(file_.get(), STDERR_FILENO);
  }
  ~StandardError() { ::dup2(before_.get(), STDERR_FILENO); }
  StandardError(const StandardError&) = delete;
  StandardError& operator=(const StandardError&) = delete;

  // The first 64 KiB.
  std::string text() const {
    std::string all(1 << 16, '\0');
    const auto bytes = ::pread(file_.get(), all.data(), all.size(), 0);
    all.resize(bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
    return all;
  }

 private:
  base::FileDescriptor before_, file_;
};

// Counts how often the part is in the text.
inline std::size_t times(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace rondo::testing
