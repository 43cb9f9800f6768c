// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/histogram.h"

#include <cstddef>
#include <vector>

#include "catch.h"

using namespace rondo::tools;

TEST_CASE("percentiles of a histogram are right to one percent") {
  Histogram times;
  CHECK(times.percentile(0.5) == 0);
  for (int i = 1; i <= 100'000; ++i) times.add(i * 0.37);
  CHECK(times.count() == 100'000);
  CHECK(times.min_us() == Approx(0.37));
  CHECK(times.max_us() == Approx(37'000));
  CHECK(times.percentile(0.5) == Approx(18'500).epsilon(0.01));
  CHECK(times.percentile(0.99) == Approx(36'630).epsilon(0.01));
  CHECK(times.percentile(1) == Approx(37'000).epsilon(0.01));
  CHECK(times.percentile(0) == Approx(0.37).epsilon(0.01));
}

TEST_CASE("a percentile is the least value that has so many of the values below it or beside it") {
  Histogram times;
  for (int i = 1; i <= 4; ++i) times.add(100 * i);
  CHECK(times.percentile(0.5) == Approx(200).epsilon(0.01));
  CHECK(times.percentile(0.51) == Approx(300).epsilon(0.01));
  CHECK(times.percentile(0.75) == Approx(300).epsilon(0.01));
  CHECK(times.percentile(0.76) == Approx(400).epsilon(0.01));
}

TEST_CASE("times beyond the classes keep their extremes") {
  Histogram times;
  times.add(0);
  times.add(1e15);
  CHECK(times.min_us() == 0);
  CHECK(times.max_us() == 1e15);
  CHECK(times.percentile(0.01) >= 0);
  CHECK(times.percentile(1) <= 1e15);
}

TEST_CASE("a drift is found beside disturbed intervals, in long series too") {
  for (const std::size_t intervals : {10U, 5000U}) {
    std::vector<double> at, values;
    for (std::size_t i = 0; i < intervals; ++i) {
      const double second = static_cast<double>(i) * 3600 / static_cast<double>(intervals - 1);
      at.push_back(second);
      // From 95 to 105 us in an hour: 10 % of the median. Every seventh is disturbed.
      values.push_back(95 + second / 360 + (i % 7 == 3 ? 4000 : 0));
    }
    CHECK(drift_percent_per_hour(at, values) == Approx(10).epsilon(0.15));
  }
  CHECK(drift_percent_per_hour(std::vector<double>{0, 1}, std::vector<double>{1, 2}) == 0);
  CHECK(drift_percent_per_hour(std::vector<double>{1, 1, 1}, std::vector<double>{1, 2, 3}) == 0);
}
