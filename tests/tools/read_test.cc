// SPDX-License-Identifier: Apache-2.0
#include "tools/records/read.h"

#include "catch.h"
#include "record_text.h"
#include "tools/plots/page.h"
#include "tools/shared/text.h"

using namespace rondo::tools;
using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

void check_refused(const std::string& text, const std::string& why) {
  INFO(text.substr(0, 200));
  CHECK_THROWS_AS(parse_record("a.json", text), UsageError);
  CHECK_THROWS_WITH(parse_record("a.json", text), StartsWith("a.json: ") && Contains(why));
}

std::string changed(const std::string& from, const std::string& to) {
  std::string text = record_text({row_text(1024, 10, 8, 12)});
  const auto place = text.find(from);
  REQUIRE(place != std::string::npos);
  return text.replace(place, from.size(), to);
}

}  // namespace

TEST_CASE("a record is read with its rows") {
  const Record record =
      parse_record("a.json", record_text({row_text(1024, 10, 8, 12), row_text(2048, 20, 19, 22)}));
  CHECK(record.kind == "bench");
  CHECK(record.complete);
  REQUIRE(record.rows.size() == 2);
  CHECK(record.rows[1].bytes == 2048);
  CHECK(record.rows[1].time.p50_us == 20);
  CHECK_FALSE(record.rows[1].latency);
  REQUIRE(record.hosts.size() == 1);
  CHECK(record.hosts[0].ranks == std::vector<int>{0, 1});
}

TEST_CASE("what is not a record is refused with its remedy") {
  check_refused("", "empty");
  check_refused(" \n", "empty");
  check_refused("# rondo 0.1.0\n", "not JSON");
  check_refused("{\"a\": 1}", "not a record");
  check_refused("[]", "not a record");
  check_refused("{\"operation\": \"all_reduce\", \"results\": []}", "before records had a version");
  check_refused(changed("\"version\": 1", "\"version\": 2"), "use the rondo that wrote it");
  check_refused(changed("\"version\": 1", "\"version\": \"1\""), "not a whole number");
  check_refused(changed("\"version\": 1", "\"version\": 0"), "not a whole number");
  check_refused(changed("\"kind\": \"bench\"", "\"kind\": \"other\""), "unknown kind other");
}

TEST_CASE("a file that ends in the middle is told from one that is wrong") {
  const std::string whole = record_text({row_text(1024, 10, 8, 12)});
  for (std::size_t bytes = 1; bytes + 2 < whole.size(); bytes += 7)
    check_refused(whole.substr(0, bytes), "ends in the middle");
  check_refused(changed("\"complete\"", "complete"), "not JSON (at byte");
}

TEST_CASE("missing members and wrong values are named with their place") {
  check_refused(changed("\"p50_us\"", "\"p51_us\""), "number 1 of results has no p50_us");
  check_refused(changed("\"bytes\": 1024", "\"bytes\": -1"), "bytes that is not a whole number");
  check_refused(changed("\"bytes\": 1024", "\"bytes\": 1.5"), "bytes that is not a whole number");
  check_refused(changed("\"root\": -1", "\"root\": -2"), "root that is not a rank or -1");
  check_refused(changed("\"root\": -1", "\"root\": 3000000000"), "root that is not a rank or -1");
  check_refused(changed("\"p50_us\": 10", "\"p50_us\": -10"), "not a number of at least 0");
  check_refused(changed("\"p50_us\": 10", "\"p50_us\": 1e300"), "not a number of at least 0");
  check_refused(changed("\"p50_us\": 10", "\"p50_us\": 1e999"), "too large");
  check_refused(changed("\"in_place\": false", "\"in_place\": 0"), "not true or false");
  check_refused(changed("\"hosts\": [", "\"hosts\": [3, "), "number 1 of hosts is not an object");
  check_refused(changed("\"complete\": true", "\"done\": true"), "the record has no complete");
}

TEST_CASE("a record cannot make the reader take much memory or a deep stack") {
  check_refused(std::string(100'000, '['), "too large for a record");
  std::string many = "{\"version\": 1, \"results\": [";
  for (int i = 0; i < 8'100'000; ++i) many += "0,";
  check_refused(many + "0]}", "too large for a record");
}

TEST_CASE("a page of a record with any texts shows them as texts") {
  const std::string evil = "</pre></script><script>alert(1)</script>\\u0000\\u001b\\\"'&";
  Record record =
      parse_record("a<b>.json", changed("\"name\": \"one\"", "\"name\": \"" + evil + "\""));
  const std::string page = page_of({&record, 1});
  CHECK(page.find("<script") == std::string::npos);
  CHECK(page.find("&lt;script&gt;alert(1)") != std::string::npos);
  CHECK(page.find('\0') == std::string::npos);
  CHECK(page.find('\x1b') == std::string::npos);
  CHECK(page.find("a<b>") == std::string::npos);
}

TEST_CASE("a page holds raw records up to a bound and names the files of the others") {
  Record record = parse_record("large.json", record_text({row_text(1024, 10, 8, 12)}));
  record.text = std::string(most_raw_bytes + 1, ' ');
  const std::string page = page_of({&record, 1});
  CHECK(page.size() < most_raw_bytes);
  CHECK(page.find("it is the file large.json") != std::string::npos);
}
