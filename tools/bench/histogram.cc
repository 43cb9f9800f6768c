// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/histogram.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tools/shared/lists.h"

namespace rondo::tools {
namespace {

constexpr double least_us = 0.01;
const double log_step = std::log(1.01);
constexpr std::size_t most_drift_points = 600;

}  // namespace

void Histogram::add(double us) {
  const double place = us > least_us ? std::log(us / least_us) / log_step : 0;
  ++counts_[static_cast<std::size_t>(std::clamp(place, 0.0, static_cast<double>(classes - 1)))];
  min_ = count_ == 0 ? us : std::min(min_, us);
  max_ = count_ == 0 ? us : std::max(max_, us);
  ++count_;
}

double Histogram::percentile(double share) const {
  const double wanted = std::max(1.0, std::ceil(share * static_cast<double>(count_)));
  double seen = 0;
  for (std::size_t i = 0; i < classes; ++i) {
    seen += static_cast<double>(counts_[i]);
    if (seen >= wanted)
      return std::clamp(least_us * std::exp((static_cast<double>(i) + 0.5) * log_step), min_, max_);
  }
  return max_;
}

double drift_percent_per_hour(std::span<const double> at, std::span<const double> values) {
  if (values.size() < 3) return 0;
  const std::size_t step = (values.size() + most_drift_points - 1) / most_drift_points;
  std::vector<double> slopes, kept;
  for (std::size_t i = 0; i < values.size(); i += step) {
    kept.push_back(values[i]);
    for (std::size_t j = 0; j < i; j += step)
      if (at[i] > at[j]) slopes.push_back((values[i] - values[j]) / (at[i] - at[j]));
  }
  const double middle = median(kept);
  return slopes.empty() || middle <= 0 ? 0 : 100 * 3600 * median(slopes) / middle;
}

}  // namespace rondo::tools
