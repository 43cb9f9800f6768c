// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <cerrno>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "catch.h"

namespace rondo::testing {
namespace {

using base::list_of_ranks;

TEST_CASE("bytes are written for people") {
  CHECK(base::describe_bytes(0) == "0 B");
  CHECK(base::describe_bytes(1023) == "1023 B");
  CHECK(base::describe_bytes(1536) == "1.5 KiB");
  CHECK(base::describe_bytes(64u << 20) == "64 MiB");
  CHECK(base::describe_bytes(std::uint64_t{3} << 40) == "3 TiB");
}

TEST_CASE("an errno stands within a sentence") {
  CHECK(base::describe_errno(ECONNREFUSED) == "connection refused");
}

TEST_CASE("a time of day is in UTC, for any number") {
  using limits = std::numeric_limits<std::int64_t>;
  CHECK(base::format_utc(1'796'078'174'123'456) == "2026-11-30T22:36:14.123456Z");
  CHECK(base::format_utc(1'709'208'000'000'000) == "2024-02-29T12:00:00.000000Z");
  CHECK(base::format_utc(-1) == "1969-12-31T23:59:59.999999Z");
  CHECK(base::format_utc(limits::max()) == "294247-01-10T04:00:54.775807Z");
  CHECK(base::format_utc(limits::min()) == "-290308-12-21T19:59:05.224192Z");
}

TEST_CASE("blanks go at both ends only") {
  CHECK(base::trim(" \ta b\r\n") == "a b");
  CHECK(base::trim(" \n").empty());
  CHECK(base::trim("").empty());
}

TEST_CASE("a number is the whole text and fits its type") {
  CHECK(base::parse_whole<int>("-7") == -7);
  CHECK(base::parse_whole<std::uint16_t>("65535") == 65535);
  for (const char* const bad : {"", " 1", "1 ", "1.5", "65536", "-1"})
    CHECK_FALSE(base::parse_whole<std::uint16_t>(bad));
}

TEST_CASE("text is cut between characters") {
  CHECK(base::first_bytes("abc", 3) == "abc");
  CHECK(base::first_bytes("abc", 2) == "ab");
  CHECK(base::first_bytes("a\xc3\xa4", 2) == "a");
  CHECK(base::first_bytes("\xe2\x82\xac", 2).empty());
  CHECK(base::first_bytes("\x80\x80", 1).empty());
}

TEST_CASE("control characters and what is not UTF-8 become blanks") {
  using namespace std::string_literals;
  CHECK(base::printable("a b \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf") ==
        "a b \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf");
  CHECK(base::printable("\0\t\n\x1b[0m\x7f"s) == "    [0m ");
  // C1, a lone second byte, a first byte alone and at the end, long forms, a surrogate, too large
  CHECK(base::printable("\xc2\x85|\x80|\xc3|\xe2\x82") == "  | | |  ");
  CHECK(base::printable("\xc0\x80|\xe0\x80\x80|\xf0\x80\x80\x80") == "  |   |    ");
  CHECK(base::printable("\xed\xa0\x80|\xf4\x90\x80\x80|\xff") == "   |    | ");
  CHECK(base::printable("").empty());
}

TEST_CASE("ranks are listed in order, three and more in a row by their ends") {
  CHECK(list_of_ranks({3}) == "rank 3");
  CHECK(list_of_ranks({1, 0}) == "ranks 0, 1");
  CHECK(list_of_ranks({0, 1, 2}) == "ranks 0-2");
  CHECK(list_of_ranks({9, 1, 5, 4, 6, 4}) == "ranks 1, 4-6, 9");
  CHECK(list_of_ranks({2, 2}) == "rank 2");
  std::vector<int> all(256);
  std::iota(all.begin(), all.end(), 0);
  CHECK(list_of_ranks(all) == "ranks 0-255");
}

TEST_CASE("of a long list of ranks the first are named") {
  std::vector<int> odd;
  for (int rank = 1; rank < 100; rank += 2) odd.push_back(rank);
  CHECK(list_of_ranks(odd) ==
        "ranks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31 and 34 more");
  odd.resize(16);
  CHECK(list_of_ranks(odd).ends_with(", 29, 31"));
}

}  // namespace
}  // namespace rondo::testing
