// SPDX-License-Identifier: Apache-2.0
#include "tools/plots/scale.h"

#include <algorithm>
#include <cmath>

#include "catch.h"

using namespace rondo::tools;

namespace {

std::vector<std::string> texts(const AxisScale& scale, std::size_t most) {
  std::vector<std::string> found;
  for (const double tick : scale.ticks(most)) found.push_back(describe(scale.quantity(), tick));
  return found;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("a linear scale has round ticks from end to end") {
  const AxisScale scale = AxisScale::linear(AxisQuantity::gigabytes_per_second, 0, 4.7);
  CHECK(texts(scale, 6) == Texts{"0", "1 GB/s", "2 GB/s", "3 GB/s", "4 GB/s", "5 GB/s"});
  CHECK(texts(scale, 3) == Texts{"0", "5 GB/s"});
  CHECK(scale.place(0) == 0);
  CHECK(scale.place(5) == 1);
  CHECK(scale.place(2.5) == Approx(0.5));
}

TEST_CASE("a scale of time is divided as clocks are") {
  CHECK(texts(AxisScale::linear(AxisQuantity::seconds, 0, 59), 5) ==
        Texts{"0", "15 s", "30 s", "45 s"});
  CHECK(texts(AxisScale::linear(AxisQuantity::seconds, 0, 3600), 5) ==
        Texts{"0", "15 min", "30 min", "45 min", "1 h"});
  CHECK(texts(AxisScale::linear(AxisQuantity::seconds, 0, 86400.0 * 9), 4) == Texts{"0", "5 d"});
}

TEST_CASE("a logarithmic scale has ticks at 1, 2 and 5 where they fit, else at powers of ten") {
  const AxisScale few = AxisScale::logarithmic(AxisQuantity::microseconds, 3, 40);
  CHECK(texts(few, 8) == Texts{"2 us", "5 us", "10 us", "20 us", "50 us"});
  const AxisScale decades = AxisScale::logarithmic(AxisQuantity::microseconds, 0.7, 2e4);
  CHECK(texts(decades, 8) == Texts{"1 us", "10 us", "100 us", "1 ms", "10 ms"});
  CHECK(texts(decades, 3) == Texts{"1 us", "100 us", "10 ms"});
  CHECK(decades.low() == 0.5);
  CHECK(decades.place(0.5) == 0);
  CHECK(decades.place(std::sqrt(0.5 * decades.high())) == Approx(0.5));
}

TEST_CASE("a single value still has a scale around it") {
  for (const AxisQuantity quantity : {AxisQuantity::bytes, AxisQuantity::microseconds,
                                      AxisQuantity::gigabytes_per_second, AxisQuantity::seconds})
    for (const double value : {1e-9, 0.3, 1.0, 7.0, 1024.0, 1e12}) {
      const double low = quantity == AxisQuantity::bytes ? std::max(value, 1.0) : value;
      for (const AxisScale& scale :
           {AxisScale::logarithmic(quantity, low, low), AxisScale::linear(quantity, 0, low)}) {
        INFO(low);
        CHECK(scale.low() < scale.high());
        CHECK_FALSE(scale.ticks(6).empty());
        CHECK(scale.place(low) >= 0);
        CHECK(scale.place(low) <= 1);
      }
    }
}

TEST_CASE("no scale has more ticks than asked for, and all ascend within it") {
  for (const AxisQuantity quantity : {AxisQuantity::bytes, AxisQuantity::microseconds,
                                      AxisQuantity::gigabytes_per_second, AxisQuantity::seconds})
    for (double low = 1; low < 1e9; low *= 7)
      for (double high = low; high < 1e13; high *= 13)
        for (const std::size_t most : {1u, 2u, 3u, 7u, 14u})
          for (const AxisScale& scale : {AxisScale::logarithmic(quantity, low, high),
                                         AxisScale::linear(quantity, low, high)}) {
            const std::vector<double> ticks = scale.ticks(most);
            INFO(low << " to " << high << ", at most " << most);
            CHECK_FALSE(ticks.empty());
            CHECK(ticks.size() <= most);
            CHECK(std::is_sorted(ticks.begin(), ticks.end()));
          }
}

TEST_CASE("sizes have ticks at powers of two") {
  const AxisScale scale = AxisScale::logarithmic(AxisQuantity::bytes, 8, 64 << 20);
  CHECK(texts(scale, 8) ==
        Texts{"8 B", "64 B", "512 B", "4 KiB", "32 KiB", "256 KiB", "2 MiB", "16 MiB"});
  CHECK(texts(AxisScale::logarithmic(AxisQuantity::bytes, 12, 13), 8).size() == 1);
}

TEST_CASE("values have the unit that keeps them short") {
  CHECK(describe(AxisQuantity::microseconds, 0.25) == "250 ns");
  CHECK(describe(AxisQuantity::microseconds, 2e6) == "2 s");
  CHECK(describe(AxisQuantity::gigabytes_per_second, 2e-4) == "200 kB/s");
  CHECK(describe(AxisQuantity::gigabytes_per_second, 0.02) == "20 MB/s");
  CHECK(describe(AxisQuantity::bytes, 65536) == "64 KiB");
}
