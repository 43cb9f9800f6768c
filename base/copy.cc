// SPDX-License-Identifier: Apache-2.0
#include "base/copy.h"

#include <algorithm>
#include <array>

#include "base/clock.h"

namespace rondo::base {
namespace {

using Copy = void (*)(std::byte*, const std::byte*, std::size_t) noexcept;

void copy_by_library(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  std::memcpy(to, from, bytes);
}

// The least of some tries: whatever disturbs one makes it longer.
nanoseconds time_of(Copy copy, std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  nanoseconds least = nanoseconds::max();
  for (int i = 0; i < 5; ++i) {
    const TimePoint start = Clock::now();
    copy(to, from, bytes);
    least = std::min<nanoseconds>(least, Clock::now() - start);
  }
  return least;
}

// The slow case costs a factor of ten and more. Without it both take about the same time.
Copy choose_copy() noexcept {
  constexpr std::size_t page = 4096, bytes = 2 * page, distance = 16;
  if (!has_vector_copy()) return copy_by_library;
  static std::array<std::byte, 2 * bytes + 2 * page> memory;
  std::byte* const from = memory.data();
  std::byte* const to = from + bytes + page + distance;
  return time_of(copy_by_library, to, from, bytes) > 2 * time_of(copy_in_vectors, to, from, bytes)
             ? copy_in_vectors
             : copy_by_library;
}

}  // namespace

void copy_long(std::byte* to, const std::byte* from, std::size_t bytes) noexcept {
  static const Copy copy = choose_copy();
  copy(to, from, bytes);
}

}  // namespace rondo::base
