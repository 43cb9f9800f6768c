// SPDX-License-Identifier: Apache-2.0
#include "tools/shared/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "base/edit_distance.h"
#include "base/text.h"

namespace rondo::tools {
namespace {

int power_of_suffix(std::string_view suffix) {
  if (suffix.empty() || suffix == "B" || suffix == "b") return 0;
  const std::string_view letters = "KMGT";
  const char upper = static_cast<char>(suffix[0] & ~0x20);
  const auto at = letters.find(upper);
  const std::string_view rest = suffix.substr(1);
  const bool known = rest.empty() || rest == "B" || rest == "b" || rest == "iB" || rest == "ib";
  return at == std::string_view::npos || !known ? -1 : static_cast<int>(at) + 1;
}

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

constexpr std::array<Unit, 5> duration_units{
    {{"", 1}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}}};
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

std::uint64_t parse_bytes(std::string_view flag, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const auto used = static_cast<std::size_t>(end - text.data());
  const int power = code == std::errc{} ? power_of_suffix(text.substr(used)) : -1;
  if (power < 0)
    throw UsageError(fmt::format(
        "{} {}: not a size; give bytes, with a suffix K, M, G or T if you like: 8, 64K, 1G", flag,
        text));
  const int shift = 10 * power;
  if (value > (std::uint64_t{1} << 46) >> shift)
    throw UsageError(fmt::format("{} {}: more than 64T", flag, text));
  return value << shift;
}

std::uint64_t parse_number(std::string_view flag, std::string_view text, std::uint64_t first,
                           std::uint64_t last) {
  const auto value = base::parse_whole<std::uint64_t>(text);
  if (value && *value >= first && *value <= last) return *value;
  throw UsageError(
      fmt::format("{} {}: give a whole number from {} to {}", flag, text, first, last));
}

int parse_int(std::string_view flag, std::string_view text, std::uint64_t first,
              std::uint64_t last) {
  return static_cast<int>(parse_number(flag, text, first, last));
}

double parse_positive(std::string_view flag, std::string_view text) {
  const auto value = base::parse_whole<double>(text);
  if (value && std::isfinite(*value) && *value > 0) return *value;
  throw UsageError(fmt::format("{} {}: give a number above 0", flag, text));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto at = text.find(separator);
    if (at != 0) parts.emplace_back(text.substr(0, at));
    text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  }
  return parts;
}

std::string suggest(std::string_view word, const std::vector<std::string>& names) {
  constexpr std::size_t longest = 64;  // a longer word is no misspelt name
  if (word.size() > longest) return {};
  std::size_t best = std::max<std::size_t>(1, word.size() / 3) + 1;
  std::string_view nearest;
  for (const std::string& name : names)
    if (const std::size_t here = base::edit_distance(word, name); here < best)
      best = here, nearest = name;
  // A name is not similar when every letter would change.
  if (nearest.empty() || best >= std::min(word.size(), nearest.size())) return {};
  return fmt::format("; did you mean {}?", nearest);
}

void refuse_unknown(std::string_view what, std::string_view given,
                    const std::vector<std::string>& possible) {
  throw UsageError(fmt::format("{} {}: unknown{}; possible: {}", what, given,
                               suggest(given, possible), join(possible)));
}

std::string join(const std::vector<std::string>& words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += between;
    text += word;
  }
  return text;
}

double parse_seconds(std::string_view flag, std::string_view text) {
  if (const auto value = parse_in(text, time_units)) return *value;
  throw UsageError(fmt::format("{} {}: not a time; give a number with ns, us, ms or s: 50us, 1.5ms",
                               flag, text));
}

double parse_duration(std::string_view flag, std::string_view text) {
  const double seconds = parse_in(text, duration_units).value_or(0);
  if (seconds > 0 && seconds <= 1e9) return seconds;
  throw UsageError(fmt::format("{} {}: {}; give seconds, or a number with ms, s, m or h: 90s, 1h",
                               flag, text, seconds > 0 ? "too long" : "not a time above zero"));
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
