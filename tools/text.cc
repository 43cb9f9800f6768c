// SPDX-License-Identifier: Apache-2.0
#include "tools/text.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

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

}  // namespace

std::uint64_t parse_bytes(std::string_view flag, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  const auto used = static_cast<std::size_t>(end - text.data());
  const int power = code == std::errc{} ? power_of_suffix(text.substr(used)) : -1;
  if (power < 0)
    throw UsageError(fmt::format(
        "{} {}: not a size; give bytes, with a suffix K, M, G or T if you like: 8, 64K, 1G", flag, text));
  const int shift = 10 * power;
  if (value > (std::uint64_t{1} << 46) >> shift)
    throw UsageError(fmt::format("{} {}: more than 64T", flag, text));
  return value << shift;
}

std::uint64_t parse_number(std::string_view flag, std::string_view text, std::uint64_t first,
                           std::uint64_t last) {
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size() || value < first || value > last)
    throw UsageError(fmt::format("{} {}: give a whole number from {} to {}", flag, text, first, last));
  return value;
}

double parse_positive(std::string_view flag, std::string_view text) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size() || !std::isfinite(value) || value <= 0)
    throw UsageError(fmt::format("{} {}: give a number above 0", flag, text));
  return value;
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.4g} {}", value, units[unit]);
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

std::string join(const std::vector<std::string>& words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += between;
    text += word;
  }
  return text;
}

}  // namespace rondo::tools
