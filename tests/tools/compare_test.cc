// SPDX-License-Identifier: Apache-2.0
#include "tools/records/compare.h"

#include "catch.h"
#include "record_text.h"
#include "tools/shared/text.h"

using namespace rondo::tools;
using Catch::Matchers::Contains;

namespace {

std::vector<Record> side(const std::vector<std::vector<std::string>>& runs) {
  std::vector<Record> records;
  for (const auto& rows : runs) records.push_back(parse_record("a.json", record_text(rows)));
  return records;
}

Verdict verdict(const std::vector<Record>& first, const std::vector<Record>& second,
                Metric metric = Metric::p50, std::optional<double> worse = 10) {
  const Comparison comparison = compare(first, second, metric, worse);
  REQUIRE(comparison.rows.size() == 1);
  return comparison.rows[0].verdict;
}

// The runs of one side, as their p50s. Each row alone has no noise.
std::vector<Record> runs(const std::vector<double>& p50s) {
  std::vector<std::vector<std::string>> rows;
  for (const double p50 : p50s) rows.push_back({row_text(1024, p50, p50, p50)});
  return side(rows);
}

}  // namespace

TEST_CASE("single rows are the same while a p50 lies between the other's min and p90") {
  const auto row = [](double p50, double min, double p90) {
    return side({{row_text(1024, p50, min, p90)}});
  };
  CHECK(verdict(row(100, 80, 150), row(140, 130, 160)) == Verdict::same);  // 140 is in 80..150
  CHECK(verdict(row(100, 98, 102), row(140, 99, 160)) == Verdict::same);   // 100 is in 99..160
  CHECK(verdict(row(100, 80, 130), row(140, 120, 160)) == Verdict::failed);
  CHECK(verdict(row(100, 98, 104), row(108, 106, 112)) == Verdict::worse);  // by less than 10 %
  CHECK(verdict(row(100, 98, 104), row(108, 106, 112), Metric::p50, 5) == Verdict::failed);
  CHECK(verdict(row(100, 98, 104), row(200, 198, 204), Metric::p50, {}) == Verdict::worse);
  CHECK(verdict(row(140, 120, 160), row(100, 80, 110)) == Verdict::better);
}

TEST_CASE("several runs are the same while one p50 lies between the other's p50s") {
  CHECK(verdict(runs({100, 101, 103}), runs({102, 130, 140})) == Verdict::same);
  CHECK(verdict(runs({100, 101, 120}), runs({110, 119, 125})) == Verdict::same);
  CHECK(verdict(runs({100, 101, 103}), runs({120, 130, 140})) == Verdict::failed);
  CHECK(verdict(runs({120, 130, 140}), runs({100, 101, 103})) == Verdict::better);
  const Comparison comparison = compare(runs({100, 104, 101}), runs({130, 120}), Metric::p50, {});
  const ComparedRow& row = comparison.rows.at(0);
  CHECK(row.first.value == 101);
  CHECK(row.first.low == 100);
  CHECK(row.first.high == 104);
  CHECK(row.second.value == 125);
  CHECK(row.ratio == Approx(125 / 101.0));
}

TEST_CASE("of many rows the outer tenths are no noise") {
  std::vector<double> steady(20, 100), slower(20, 150);
  steady[3] = 500;  // one slow interval of a soak
  slower[5] = 20;
  CHECK(verdict(runs(steady), runs(slower)) == Verdict::failed);
  steady[4] = steady[5] = 500;  // more than a tenth
  CHECK(verdict(runs(steady), runs(slower)) == Verdict::same);
}

TEST_CASE("less bandwidth is worse, and more time") {
  const auto row = [](double p50) { return side({{row_text(1024, p50, p50 - 1, p50 + 1)}}); };
  CHECK(verdict(row(100), row(150), Metric::busbw) == Verdict::failed);
  CHECK(verdict(row(150), row(100), Metric::busbw) == Verdict::better);
  CHECK(verdict(row(100), row(108), Metric::busbw) == Verdict::worse);  // 0.926 of it
  CHECK(verdict(row(100), row(150), Metric::p99) == Verdict::failed);
  CHECK(verdict(row(100), row(102), Metric::p99) == Verdict::same);  // in p90..max
}

TEST_CASE("wrong elements fail whatever the times are") {
  auto second = side({{row_text(1024, 10, 9, 11)}});
  second[0].rows[0].wrong = 1;
  CHECK(verdict(side({{row_text(1024, 100, 99, 101)}}), second) == Verdict::wrong);
}

TEST_CASE("rows are matched by what they measure, and others are listed") {
  const auto first = side({{row_text(1024, 10, 9, 11), row_text(2048, 10, 9, 11)}});
  const auto second = side({{row_text(4096, 10, 9, 11), row_text(1024, 10, 9, 11)}});
  const Comparison comparison = compare(first, second, Metric::p50, 10);
  REQUIRE(comparison.rows.size() == 1);
  CHECK(comparison.rows[0].key.bytes == 1024);
  REQUIRE(comparison.only_first.size() == 1);
  CHECK(describe(comparison.only_first[0]) == "all_reduce 2 KiB f32 sum, 2 ranks");
  REQUIRE(comparison.only_second.size() == 1);
  CHECK(comparison.only_second[0].bytes == 4096);
  for (auto change :
       {+[](ResultRow& row) { row.type = "f64"; }, +[](ResultRow& row) { row.op = "max"; },
        +[](ResultRow& row) { row.root = 0; }, +[](ResultRow& row) { row.in_place = true; },
        +[](ResultRow& row) { row.ranks = 3; },
        +[](ResultRow& row) { row.operation = "reduce"; }}) {
    auto other = side({{row_text(1024, 10, 9, 11)}});
    change(other[0].rows[0]);
    CHECK_THROWS_WITH(compare(first, other, Metric::p50, 10), Contains("no row in common"));
  }
}

TEST_CASE("a row without the metric is not judged") {
  CHECK(verdict(side({{row_text(0, 10, 9, 11)}}), side({{row_text(0, 100, 99, 101)}}),
                Metric::busbw) == Verdict::unknown);
}

TEST_CASE("what differs between the machines is told") {
  auto first = side({{row_text(1024, 10, 9, 11)}}), second = first;
  CHECK(differences(first, second).empty());
  second[0].hosts[0].processor = "Intel";
  second[0].binding = "none";
  first[0].environment = {{"RONDO_WAIT", "spin"}, {"RONDO_RANK", "0"}, {"PMI_RANK", "1"}};
  CHECK(differences(first, second) == std::vector<std::string>{"binding: core | none",
                                                               "processor: AMD | Intel",
                                                               "RONDO_WAIT: spin | not set"});
}

TEST_CASE("how much worse is a percentage") {
  CHECK(parse_worse("10%", Metric::p50) == 10);
  CHECK(parse_worse("0%", Metric::p50) == 0);
  CHECK(parse_worse("2.5%", Metric::busbw) == 2.5);
  CHECK(parse_worse("150%", Metric::p50) == 150);
  for (const char* bad : {"10", "0.1", "", "%", "-1%", "x%", "nan%", "inf%", "10%%", " 10%"})
    CHECK_THROWS_WITH(parse_worse(bad, Metric::p50),
                      Catch::Matchers::StartsWith(std::string("--worse ") + bad + ": "));
  CHECK_THROWS_WITH(parse_worse("100%", Metric::busbw), Contains("less than 100%"));
}
