// SPDX-License-Identifier: Apache-2.0
#include <rondo/communicator.h>
#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "transports/transport.h"

namespace rondo {

Memory::Memory() noexcept = default;

Memory::Memory(std::unique_ptr<transports::Allocation> allocation) noexcept
    : allocation_(std::move(allocation)) {
  if (!allocation_) return;
  data_ = allocation_->memory().data();
  bytes_ = allocation_->memory().size();
}

Memory::Memory(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data_ == MAP_FAILED) {
    data_ = nullptr;
    throw Error(Errc::system, "allocate: mmap of " + std::to_string(bytes) +
                                  " bytes: " + std::generic_category().message(errno));
  }
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      allocation_(std::move(other.allocation_)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(allocation_, other.allocation_);
  return *this;
}

Memory::~Memory() {
  if (data_ != nullptr && !allocation_) ::munmap(data_, bytes_);
}

}  // namespace rondo
