// SPDX-License-Identifier: Apache-2.0
#include "tools/quantity.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "tools/text.h"

namespace rondo::tools {
namespace {

using Unit = std::pair<std::string_view, double>;

// A number from 0 and one of the units; nothing when it is not that.
template <std::size_t N>
std::optional<double> parse_in(std::string_view text, const std::array<Unit, N>& units) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || !std::isfinite(value) || value < 0) return std::nullopt;
  const std::string_view rest = text.substr(static_cast<std::size_t>(end - text.data()));
  for (const auto& [unit, scale] : units)
    if (rest == unit) return value * scale;
  return value == 0 && rest.empty() ? std::optional(0.0) : std::nullopt;
}

constexpr std::array<Unit, 4> time_units{{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}}};
constexpr std::array<Unit, 8> rate_units{{{"bit", 1.0 / 8},
                                          {"kbit", 1e3 / 8},
                                          {"mbit", 1e6 / 8},
                                          {"gbit", 1e9 / 8},
                                          {"B", 1},
                                          {"KB", 1e3},
                                          {"MB", 1e6},
                                          {"GB", 1e9}}};

}  // namespace

double parse_seconds(std::string_view flag, std::string_view text) {
  if (const auto value = parse_in(text, time_units)) return *value;
  throw UsageError(fmt::format("{} {}: not a time; give a number with ns, us, ms or s: 50us, 1.5ms",
                               flag, text));
}

double parse_rate(std::string_view flag, std::string_view text) {
  if (const auto value = parse_in(text, rate_units); value && *value > 0) return *value;
  throw UsageError(
      fmt::format("{} {}: not a rate; give bits (kbit, mbit, gbit) or bytes (KB, MB, GB) per "
                  "second: 953mbit, 1.25GB",
                  flag, text));
}

std::string format_seconds(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.4g} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.4g} ms", seconds * 1e3);
  return fmt::format("{:.4g} s", seconds);
}

}  // namespace rondo::tools
