// SPDX-License-Identifier: Apache-2.0
//
// The copy of payloads. On some processors glibc's memcpy is slow when the destination lies a few
// bytes after the source, modulo a page. glibc copies more than 2 KiB with `rep movsb` there (AMD
// Zen 3: 3 GB/s instead of 50). Large blocks from malloc() lie 16 bytes after a page and shared
// memory lies on one, so this case is the common one. docs/reference/direct.md has figures.
#pragma once

#include <cstddef>
#include <cstring>

namespace rondo::base {

// Below this size memcpy has no slow case.
inline constexpr std::size_t least_long_copy = 1024;

// Copies at least least_long_copy bytes; with fewer it may write outside `to`. The first call
// measures memcpy for some microseconds, and chooses a loop over vector registers if memcpy has the
// slow case. Thread-safe. Source and destination must not overlap.
void copy_long(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

// Copies any number of bytes. Source and destination must not overlap, and may be null when there
// are no bytes. Thread-safe. Nothing fails.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  if (bytes >= least_long_copy)
    copy_long(to, from, bytes);
  else if (bytes != 0)
    std::memcpy(to, from, bytes);
}

// Whether this processor can run the loop over vector registers, and that loop. The loop has the
// rules of copy_long(). Each family of processors has a source of its own.
bool has_vector_copy() noexcept;
void copy_in_vectors(std::byte* to, const std::byte* from, std::size_t bytes) noexcept;

}  // namespace rondo::base
