// SPDX-License-Identifier: Apache-2.0
#include "tools/shared/text.h"

#include "catch.h"

using namespace rondo::tools;

TEST_CASE("sizes are read with suffixes that are powers of 1024") {
  CHECK(parse_bytes("-b", "0") == 0);
  CHECK(parse_bytes("-b", "8") == 8);
  CHECK(parse_bytes("-b", "8B") == 8);
  CHECK(parse_bytes("-b", "1k") == 1024);
  CHECK(parse_bytes("-b", "64M") == 64u << 20);
  CHECK(parse_bytes("-b", "64MiB") == 64u << 20);
  CHECK(parse_bytes("-b", "3GB") == std::uint64_t{3} << 30);
  CHECK(parse_bytes("-b", "64T") == std::uint64_t{64} << 40);
}

TEST_CASE("what is no size is refused with the flag and the text") {
  for (const char* bad : {"", "M", "-1", "1.5M", "8X", "8MM", "8 M", "65T", "18446744073709551616",
                          "999999999999G"}) {
    INFO(bad);
    CHECK_THROWS_WITH(parse_bytes("--minbytes", bad),
                      Catch::Matchers::StartsWith(std::string("--minbytes ") + bad));
  }
}

TEST_CASE("numbers are whole and within their range") {
  CHECK(parse_number("-n", "1", 1, 10) == 1);
  CHECK(parse_number("-n", "10", 1, 10) == 10);
  for (const char* bad : {"0", "11", "-1", "", "x", "1x", "1.0", "99999999999999999999999"}) {
    INFO(bad);
    CHECK_THROWS_AS(parse_number("-n", bad, 1, 10), UsageError);
  }
  CHECK(parse_positive("--min-bandwidth", "0.25") == 0.25);
  for (const char* bad : {"0", "-1", "nan", "inf", "", "1GB"})
    CHECK_THROWS_AS(parse_positive("--min-bandwidth", bad), UsageError);
}

TEST_CASE("lists are split at separators, empty words left out") {
  CHECK(split("a,b", ',') == std::vector<std::string>{"a", "b"});
  CHECK(split(",a,,b,", ',') == std::vector<std::string>{"a", "b"});
  CHECK(split("", ',').empty());
  CHECK(join({"a", "b", "c"}) == "a, b, c");
  CHECK(join({}).empty());
}
