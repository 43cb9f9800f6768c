// SPDX-License-Identifier: Apache-2.0
#include <rondo/communicator.h>
#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "transports/transport.h"

namespace rondo {

Registration::Registration() noexcept = default;

Registration::Registration(void* data, std::size_t bytes,
                           std::vector<std::unique_ptr<transports::Registration>> parts) noexcept
    : data_(data), bytes_(bytes), parts_(std::move(parts)) {}

Registration::Registration(Registration&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      parts_(std::move(other.parts_)) {}

// The registration that this object had ends here, not when `other` is destroyed.
Registration& Registration::operator=(Registration&& other) noexcept {
  Registration taken(std::move(other));
  std::swap(data_, taken.data_);
  std::swap(bytes_, taken.bytes_);
  std::swap(parts_, taken.parts_);
  return *this;
}

Registration::~Registration() = default;

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
      allocation_(std::move(other.allocation_)),
      registration_(std::move(other.registration_)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(allocation_, other.allocation_);
  std::swap(registration_, other.registration_);
  return *this;
}

Memory::~Memory() {
  registration_ = {};
  if (data_ != nullptr && !allocation_) ::munmap(data_, bytes_);
}

}  // namespace rondo
