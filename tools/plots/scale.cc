// SPDX-License-Identifier: Apache-2.0
#include "tools/plots/scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"

namespace rondo::tools {
namespace {

constexpr std::array steps_of_ten{1.0, 2.0, 5.0};
// Steps of a scale of seconds up to a day; beyond, days.
constexpr std::array steps_of_time{1.0,    2.0,    5.0,     10.0,    15.0,   30.0,
                                   60.0,   120.0,  300.0,   600.0,   900.0,  1800.0,
                                   3600.0, 7200.0, 14400.0, 43200.0, 86400.0};

// The greatest number 1, 2 or 5 times a power of ten that is not above the value.
double at_or_below(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  double found = power;
  for (const double step : steps_of_ten)
    if (step * power <= value * (1 + 1e-9)) found = step * power;
  return found;
}

double at_or_above(double value) {
  const double below = at_or_below(value);
  if (below >= value * (1 - 1e-9)) return below;
  const double power = std::pow(10, std::floor(std::log10(below * (1 + 1e-9))));
  for (const double step : steps_of_ten)
    if (step * power > below * (1 + 1e-9)) return step * power;
  return 10 * power;
}

// The least step with which the span has no more than `most` ticks.
double step_of(AxisQuantity quantity, double span, std::size_t most) {
  const double wanted = span / static_cast<double>(std::max<std::size_t>(most, 2) - 1);
  if (quantity == AxisQuantity::seconds && wanted >= 1) {
    for (const double step : steps_of_time)
      if (step >= wanted) return step;
    return steps_of_time.back() * at_or_above(wanted / steps_of_time.back());
  }
  return wanted > 0 ? at_or_above(wanted) : 1;
}

// Powers of two from low to high: every one, every second, ...
std::vector<double> powers_of_two(double low, double high, std::size_t most) {
  const auto first = static_cast<int>(std::ceil(std::log2(low) - 1e-9));
  const auto last = static_cast<int>(std::floor(std::log2(high) + 1e-9));
  std::vector<double> ticks;
  if (first > last) return {low};
  const int every = (last - first) / static_cast<int>(std::max<std::size_t>(most, 1)) + 1;
  for (int power = first; power <= last; power += every) ticks.push_back(std::exp2(power));
  return ticks;
}

// 1, 2 and 5 times powers of ten where they fit, else powers of ten: every one, every second, ...
std::vector<double> powers_of_ten(double low, double high, std::size_t most) {
  std::vector<double> ticks;
  for (double tick = at_or_below(low); tick <= high * (1 + 1e-9) && ticks.size() <= most;
       tick = at_or_above(tick * 1.5))
    if (tick >= low * (1 - 1e-9)) ticks.push_back(tick);
  if (!ticks.empty() && ticks.size() <= most) return ticks;
  const auto first = static_cast<int>(std::ceil(std::log10(low) - 1e-9));
  const auto last = static_cast<int>(std::floor(std::log10(high) + 1e-9));
  ticks.clear();
  if (first > last) return {at_or_below(high)};
  const int every = (last - first) / static_cast<int>(std::max<std::size_t>(most, 1)) + 1;
  for (int power = first; power <= last; power += every) ticks.push_back(std::pow(10, power));
  return ticks;
}

// Four digits, so that sums of steps have no long tails.
std::string with_unit(double value, const char* unit) {
  return fmt::format("{:.4g} {}", value, unit);
}

std::string describe_time(double seconds) {
  if (seconds == 0) return "0";
  if (seconds < 60) return with_unit(seconds, "s");
  if (seconds < 3600) return with_unit(seconds / 60, "min");
  return seconds < 2 * 86400.0 ? with_unit(seconds / 3600, "h") : with_unit(seconds / 86400, "d");
}

}  // namespace

std::string describe(AxisQuantity quantity, double value) {
  switch (quantity) {
    case AxisQuantity::bytes:
      return base::describe_bytes(static_cast<std::uint64_t>(std::clamp(value, 0.0, 1e19)));
    case AxisQuantity::microseconds:
      if (value == 0) return "0";
      if (value < 1) return with_unit(value * 1e3, "ns");
      if (value < 1e3) return with_unit(value, "us");
      return value < 1e6 ? with_unit(value / 1e3, "ms") : with_unit(value / 1e6, "s");
    case AxisQuantity::gigabytes_per_second:
      if (value == 0) return "0";
      if (value < 1e-6) return with_unit(value * 1e9, "B/s");
      if (value < 1e-3) return with_unit(value * 1e6, "kB/s");
      if (value < 1) return with_unit(value * 1e3, "MB/s");
      return value < 1e3 ? with_unit(value, "GB/s") : with_unit(value / 1e3, "TB/s");
    case AxisQuantity::seconds:
      break;
  }
  return describe_time(value);
}

AxisScale::AxisScale(AxisQuantity quantity, bool logarithmic, double low, double high)
    : quantity_(quantity), logarithmic_(logarithmic), low_(low), high_(high) {}

AxisScale AxisScale::linear(AxisQuantity quantity, double low, double high) {
  if (high <= low) high = low > 0 ? 2 * low : low + 1;
  constexpr std::size_t usual = 6;
  const double step = step_of(quantity, high - low, usual);
  const double first = std::floor(low / step + 1e-9) * step;
  // Time goes from side to side, without an empty end.
  const double last =
      quantity == AxisQuantity::seconds ? high : std::ceil(high / step - 1e-9) * step;
  return {quantity, false, first, last};
}

AxisScale AxisScale::logarithmic(AxisQuantity quantity, double low, double high) {
  if (quantity == AxisQuantity::bytes) {
    if (low == high) return {quantity, true, low / 2, high * 2};
    return {quantity, true, low, high};
  }
  const double first = at_or_below(low), last = at_or_above(high);
  return {quantity, true, first, last > first * 1.5 ? last : at_or_above(first * 1.5)};
}

double AxisScale::place(double value) const {
  const double place = logarithmic_ ? std::log(value / low_) / std::log(high_ / low_)
                                    : (value - low_) / (high_ - low_);
  return std::clamp(place, 0.0, 1.0);
}

std::vector<double> AxisScale::ticks(std::size_t most) const {
  if (logarithmic_)
    return quantity_ == AxisQuantity::bytes ? powers_of_two(low_, high_, most)
                                            : powers_of_ten(low_, high_, most);
  const double step = step_of(quantity_, high_ - low_, most);
  std::vector<double> ticks;
  const double first = std::ceil(low_ / step - 1e-9);
  for (double number = first; number * step <= high_ + step * 1e-9 && ticks.size() < most; ++number)
    ticks.push_back(number * step);
  if (ticks.empty()) ticks.push_back(low_);
  return ticks;
}

}  // namespace rondo::tools
