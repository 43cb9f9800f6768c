// SPDX-License-Identifier: Apache-2.0
#include "base/copy.h"

#include <algorithm>
#include <random>
#include <vector>

#include "catch.h"
#include "skip.h"

using namespace rondo;

namespace {

using Copy = void (*)(std::byte*, const std::byte*, std::size_t) noexcept;

std::vector<std::byte> random_bytes(std::size_t count) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Whether exactly the destination holds the source, at every place that both may have in a vector.
bool copies(Copy copy, std::size_t bytes) {
  constexpr std::size_t places = 65;
  const std::vector<std::byte> source = random_bytes(bytes + places);
  for (std::size_t place = 0; place < places; ++place) {
    const std::size_t from = place * 13 % places;
    std::vector<std::byte> memory(bytes + 2 * places, std::byte{0x5a}), expected = memory;
    std::copy_n(source.data() + from, bytes, expected.data() + place);
    copy(memory.data() + place, source.data() + from, bytes);
    if (memory != expected) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("copy: bytes of every length up to some vectors, and of long ones", "[copy]") {
  for (std::size_t bytes = 0; bytes < 400; ++bytes) CHECK(copies(base::copy_bytes, bytes));
  for (const std::size_t bytes : {std::size_t{1} << 16, (std::size_t{1} << 16) + 77})
    CHECK(copies(base::copy_bytes, bytes));
}

// Whether memcpy or the loop is used depends on the processor, so this asks for the loop.
TEST_CASE("copy: the loop over vectors copies each length that it may get", "[.][avx2]") {
  if (!base::has_vector_copy()) skip_program("no AVX2 here, or RONDO_ISA=scalar");
  for (std::size_t bytes = base::least_long_copy; bytes < base::least_long_copy + 300; ++bytes)
    CHECK(copies(base::copy_in_vectors, bytes));
  CHECK(copies(base::copy_in_vectors, (std::size_t{1} << 18) + 1));
}

TEST_CASE("copy: nothing, from and to nowhere", "[copy]") {
  base::copy_bytes(nullptr, nullptr, 0);
}
