// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include <cstdint>

#include "base/copy.h"
#include "base/processor.h"

namespace rondo::base {
namespace {

constexpr std::size_t vector_bytes = sizeof(__m256i), vectors = 4;
constexpr std::size_t copy_block_bytes = vectors * vector_bytes;
static_assert(least_long_copy >= 2 * copy_block_bytes);

struct Block {
  __m256i part[vectors];
};

[[gnu::target("avx2"), gnu::always_inline]] inline Block load(const std::byte* from) noexcept {
  Block block;
  for (std::size_t i = 0; i < vectors; ++i)
    block.part[i] = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(from + i * vector_bytes));
  return block;
}

[[gnu::target("avx2"), gnu::always_inline]] inline void store(std::byte* to,
                                                              const Block& block) noexcept {
  for (std::size_t i = 0; i < vectors; ++i)
    _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(to + i * vector_bytes), block.part[i]);
}

}  // namespace

bool has_vector_copy() noexcept {
  return best_isa() != Isa::scalar;
}

// The blocks between lie on whole vectors of the destination. The first and the last block lie
// anywhere, and overlap their neighbours.
[[gnu::target("avx2")]] void copy_in_vectors(std::byte* to, const std::byte* from,
                                             std::size_t bytes) noexcept {
  store(to, load(from));
  const std::size_t begin = vector_bytes - reinterpret_cast<std::uintptr_t>(to) % vector_bytes;
  for (std::size_t at = begin; at < bytes - copy_block_bytes; at += copy_block_bytes)
    store(to + at, load(from + at));
  store(to + bytes - copy_block_bytes, load(from + bytes - copy_block_bytes));
}

}  // namespace rondo::base
