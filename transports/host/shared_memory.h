// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/file_descriptor.h"

namespace rondo::host {

// Zeroed memory without a name, whose size nobody can change any more; anyone who is handed the
// descriptor can map it. Throws Error(system).
base::FileDescriptor make_shared_memory(std::size_t bytes);

// The same without a size yet: it can grow, and never shrinks.
base::FileDescriptor make_growing_memory();
void grow_memory(int descriptor, std::size_t bytes);

// Whether this process may make a file of this size (ulimit -f); the system kills a process that
// tries to make a larger one.
bool fits_file_limit(std::size_t bytes) noexcept;

// From now on it can only be mapped for reading; mappings that exist keep what they may. Where the
// system is too old, nothing happens.
void forbid_writing(int descriptor) noexcept;

// What is wrong with a descriptor that a peer has sent, empty when nothing: it must be such memory,
// of exactly this size, for otherwise the peer could take pages away from under whoever reads them.
std::string defect_of_memory(int descriptor, std::size_t bytes);
// The same for memory that may grow: it must have at least this size, and be unable to shrink.
std::string defect_of_growing_memory(int descriptor, std::size_t bytes);

// Shared memory in this process for as long as the object lives.
class Mapping {
 public:
  enum class Access { read, write };

  Mapping() noexcept = default;
  // A mapping larger than a huge page that is written begins at a multiple of its size. Throws
  // Error(system).
  Mapping(int descriptor, std::size_t bytes, Access access, std::size_t offset = 0);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const noexcept { return bytes_.data(); }
  std::size_t size() const noexcept { return bytes_.size(); }
  explicit operator bool() const noexcept { return bytes_.data() != nullptr; }
  // Gives these pages back to the system, for all that have mapped them: they read zeros
  // afterwards.
  void discard(std::size_t offset, std::size_t bytes) noexcept;

 private:
  std::span<std::byte> bytes_;
};

}  // namespace rondo::host
