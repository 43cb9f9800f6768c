// SPDX-License-Identifier: Apache-2.0
#include "base/mix.h"

#include <set>

#include "catch.h"

namespace rondo::testing {
namespace {

// The numbers come from the reference program by S. Vigna (prng.di.unimi.it/splitmix64.c), seed
// 1234567.
TEST_CASE("SplitMix64 gives the numbers of the reference") {
  base::SplitMix64 random(1234567);
  for (const std::uint64_t wanted :
       {6457827717110365317u, 3203168211198807973u, 9817491932198370423u, 4593380528125082431u,
        16408922859458223821u})
    CHECK(random.next() == wanted);
}

TEST_CASE("hashes tell order, length and every bit apart") {
  std::set<std::uint64_t> seen{base::hash_text(""), base::hash_text(std::string_view("\0", 1)),
                               base::hash_text("ab"), base::hash_text("ba")};
  CHECK(seen.size() == 4);
  for (int bit = 0; bit < 64; ++bit) {
    seen.insert(base::mix_hash(1, std::uint64_t{1} << bit));
    seen.insert(base::mix_hash(std::uint64_t{1} << bit, 0));
  }
  CHECK(seen.size() == 4 + 2 * 64);
}

}  // namespace
}  // namespace rondo::testing
