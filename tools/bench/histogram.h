// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rondo::tools {

// Times of any number of iterations in bounded memory: classes whose bounds are one percent apart,
// from 10 ns to over an hour. Percentiles are right to one percent; the smallest and the largest
// time are exact.
class Histogram {
 public:
  void add(double us);
  std::uint64_t count() const noexcept { return count_; }
  double min_us() const noexcept { return min_; }
  double max_us() const noexcept { return max_; }
  // A time that at least this share of the times does not exceed. 0 without times.
  double percentile(double share) const;

 private:
  static constexpr std::size_t classes = 2700;
  std::array<std::uint64_t, classes> counts_{};
  std::uint64_t count_ = 0;
  double min_ = 0, max_ = 0;
};

// How much a series changes in an hour, in percent of its median: the median of the slopes between
// its points, so that a few disturbed ones do not count. Of long series evenly chosen points are
// taken. 0 for fewer than three points. at: seconds, ascending.
double drift_percent_per_hour(std::span<const double> at, std::span<const double> values);

}  // namespace rondo::tools
