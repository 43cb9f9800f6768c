// SPDX-License-Identifier: Apache-2.0
#include "base/pages.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>

#include <rondo/error.h>

#include "base/text.h"

namespace rondo::base {

Pages::Pages(std::size_t bytes) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(Errc::system,
                fmt::format("mmap of {}: {}", describe_bytes(bytes), describe_errno(errno)));
  memory_ = {static_cast<std::byte*>(memory), bytes};
}

// A child of fork() may use the addresses for something else.
Pages::~Pages() {
  if (generation_ == process_generation()) ::munmap(memory_.data(), memory_.size());
}

void Pages::discard() const noexcept {
  if (generation_ == process_generation()) ::madvise(memory_.data(), memory_.size(), MADV_DONTNEED);
}

}  // namespace rondo::base
