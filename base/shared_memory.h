// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/file_descriptor.h"

namespace rondo::base {

// The system's unit of memory: 4 KiB, on some kernels for aarch64 64 KiB. Mappings begin and end
// there.
std::size_t page_bytes() noexcept;

// Makes zeroed memory without a name, whose size nobody can change any more. Every process that
// gets the descriptor can map it. Throws Error(system).
FileDescriptor make_shared_memory(std::size_t bytes);

// Makes such memory with no size yet, which can grow and never shrinks. Both throw Error(system).
FileDescriptor make_growing_memory();
void grow_memory(int descriptor, std::size_t bytes);

// Whether this process may make a file of this size (ulimit -f). If it tries to make a larger one,
// the system kills it.
bool fits_file_limit(std::size_t bytes) noexcept;

// Allows only mappings for reading from now on; existing ones stay writable. Does nothing where the
// system is too old.
void forbid_writing(int descriptor) noexcept;

// Returns what is wrong with a descriptor that a peer has sent; empty when nothing is. It must be
// sealed shared memory of exactly this size. Otherwise the peer could remove pages while a rank
// reads them.
std::string defect_of_memory(int descriptor, std::size_t bytes);
// Returns the same for memory that may grow: it must have at least this size, and must not be able
// to shrink.
std::string defect_of_growing_memory(int descriptor, std::size_t bytes);

// Maps shared memory for as long as the object lives. Reentrant.
class Mapping {
 public:
  enum class Access { read, write };

  Mapping() noexcept = default;
  // A writable mapping of at least a huge page (2 MiB) begins at a multiple of 2 MiB, if there is
  // address space for that. Throws Error(system).
  Mapping(int descriptor, std::size_t bytes, Access access, std::size_t offset = 0);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const noexcept { return bytes_.data(); }
  std::size_t size() const noexcept { return bytes_.size(); }
  explicit operator bool() const noexcept { return bytes_.data() != nullptr; }
  // Children made by fork() do not get this mapping, so they neither keep its memory in use nor
  // write to it. They must not destroy this object. Without effect where the system refuses.
  void hide_from_children() noexcept;
  // Gives these pages back to the system. Every process that has mapped them reads zeros
  // afterwards. offset and bytes are multiples of page_bytes(): the system takes whole pages.
  void discard(std::size_t offset, std::size_t bytes) noexcept;

 private:
  std::span<std::byte> bytes_;
};

}  // namespace rondo::base
