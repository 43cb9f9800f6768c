// SPDX-License-Identifier: Apache-2.0
// Two lists of counts with the same CRC32C are different calls. Ranks that pass different lists get
// an error, never the layout of another rank.
#include <rondo/error.h>

#include <array>
#include <stdexcept>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/mix.h"
#include "catch.h"
#include "support/ranks.h"

namespace rondo::testing {
namespace {

using Counts = std::array<std::size_t, 3>;

std::uint32_t crc_of(const Counts& counts) {
  std::array<std::byte, 24> bytes;
  for (std::size_t i = 0; i < counts.size(); ++i)
    base::store_little(bytes.data() + 8 * i, static_cast<std::uint64_t>(counts[i]));
  return base::crc32c(bytes);
}

// Finds two lists with the same sum and the same checksum. Among 2^20 random lists about a hundred
// share their 32-bit checksum with another.
std::array<Counts, 2> find_collision() {
  constexpr std::size_t most = 100'000;
  std::unordered_map<std::uint32_t, Counts> seen;
  for (std::uint64_t i = 0; i < std::uint64_t{1} << 20; ++i) {
    const std::uint64_t drawn = base::mix_hash(1, i);
    const std::size_t first = drawn % most, second = (drawn >> 32) % most;
    const Counts counts{first, second, 2 * most - first - second};
    const auto [other, is_new] = seen.emplace(crc_of(counts), counts);
    if (!is_new && other->second != counts) return {other->second, counts};
  }
  throw std::runtime_error("no two lists have one checksum");
}

}  // namespace

TEST_CASE("ranks whose counts differ are told so, although the counts have one CRC32C") {
  const Over over = GENERATE(Over::mem, Over::tcp, Over::shm);
  const std::array<Counts, 2> lists = find_collision();
  REQUIRE(lists[0] != lists[1]);
  REQUIRE(crc_of(lists[0]) == crc_of(lists[1]));
  Setup setup;
  setup.over = over;
  setup.size = 3;
  run_communicators(setup, "counts", [&](Communicator& c, int rank) {
    const Counts& counts = lists[rank == 2 ? 1 : 0];
    std::vector<float> in(counts[static_cast<std::size_t>(rank)], 1.0F),
        out(counts[0] + counts[1] + counts[2]);
    try {
      c.all_gather_v({in.data(), in.size(), DType::f32}, {out.data(), out.size(), DType::f32},
                     counts)
          .wait();
    } catch (const Error& error) {
      expect(error.code() == Errc::mismatch, error.what());
      return;
    }
    expect(false, "the call ended well, with blocks where another rank has none");
  });
}

}  // namespace rondo::testing
