// SPDX-License-Identifier: Apache-2.0
#include "tools/plots/svg.h"

#include "catch.h"
#include "tools/plots/chart.h"

using namespace rondo::tools;

TEST_CASE("text cannot end the markup around it") {
  CHECK(markup_text("</script><b>&amp;\"'") == "&lt;/script&gt;&lt;b&gt;&amp;amp;\"'");
  CHECK(attribute_text("a\" onload=\"b") == "a&quot; onload=&quot;b");
}

TEST_CASE("characters that XML forbids, and bytes that are not UTF-8, are replaced") {
  const std::string replaced = "\xEF\xBF\xBD";
  CHECK(markup_text(std::string("a\0b", 3)) == "a" + replaced + "b");
  for (const char* bad : {"\x01", "\x1b", "\x7f", "\xC2\x85", "\xEF\xBF\xBE", "\xEF\xBF\xBF",
                          "\xF0\x9F\xBF\xBE", "\xE2\x80\xAE", "\xE2\x81\xA6"})
    CHECK(markup_text(bad) == replaced);
  CHECK(markup_text("\xFF") == replaced);
  CHECK(markup_text("\xC0\xAF") == replaced + replaced);                 // an overlong slash
  CHECK(markup_text("\xED\xA0\x80") == replaced + replaced + replaced);  // a surrogate
  CHECK(markup_text("\xE2\x82") == replaced + replaced);                 // cut
  for (const char* fine : {"\t\n", "\xC3\xA4", "\xE2\x82\xAC", "\xF0\x9F\x99\x82"})
    CHECK(markup_text(fine) == fine);
}

TEST_CASE("long texts are cut between characters") {
  CHECK(shortened("abcdef", 6) == "abcdef");
  CHECK(shortened("abcdefg", 6) == "abc...");
  CHECK(shortened("\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4", 4) == "\xC3\xA4...");
}

TEST_CASE("notes are broken between words") {
  const auto lines = wrapped("one two three four five six seven", 10, 90);
  CHECK(lines.size() > 1);
  for (const std::string& line : lines) CHECK(width_of_text(line, 10) <= 90);
  CHECK(wrapped(std::string(1000, 'x'), 10, 90).size() == 1);
}

TEST_CASE("a long line keeps its median and its worst edge when it is thinned") {
  std::vector<ChartPoint> points;
  for (int i = 0; i < 10'000; ++i)
    points.push_back(
        {static_cast<double>(i), i == 5050 ? 900.0 : 10.0, i == 5050 ? 1000.0 : 20.0, ""});
  const auto fewer = thinned(points, false, 100);
  REQUIRE(fewer.size() == 100);
  double most = 0;
  for (const ChartPoint& point : fewer) {
    CHECK(point.y == 10);
    most = std::max(most, point.edge.value_or(0));
  }
  CHECK(most == 1000);
  CHECK(thinned(points, false, 10'000).size() == 10'000);
}

TEST_CASE("a chart has a different mark for each line, and every text is escaped") {
  Chart chart;
  chart.title = "<title>";
  for (int i = 0; i < 9; ++i)
    chart.lines.push_back({"line <" + std::to_string(i), {{8, 1.0 + i, {}, "<hint>"}}});
  const Picture picture = draw(chart);
  CHECK(picture.elements.find("&lt;title&gt;") != std::string::npos);
  CHECK(picture.elements.find("<title>&lt;hint&gt;</title>") != std::string::npos);
  CHECK(picture.elements.find("line <") == std::string::npos);
  CHECK(picture.elements.find("nan") == std::string::npos);
}
