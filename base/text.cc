// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstddef>
#include <iterator>

namespace rondo::base {

std::string describe_bytes(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 5> units{"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  double value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.4g} {}", value, units[unit]);
}

std::string describe_errno(int number) {
  std::string text = std::generic_category().message(number);
  if (text.size() > 1 && std::islower(static_cast<unsigned char>(text[1])) != 0)
    text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

// Dates repeat after 400 years. So the year of std::chrono, a short, does for all times.
std::string format_utc(std::int64_t microseconds) {
  constexpr std::int64_t day = 86'400'000'000, cycle = 146'097;
  const std::int64_t days = microseconds / day - (microseconds % day < 0 ? 1 : 0);
  const std::int64_t cycles = days / cycle - (days % cycle < 0 ? 1 : 0);
  const std::chrono::year_month_day date{
      std::chrono::sys_days(std::chrono::days(days - cycles * cycle))};
  const std::int64_t time = (microseconds % day + day) % day, seconds = time / 1'000'000;
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z",
                     static_cast<int>(date.year()) + 400 * cycles,
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     seconds / 3600, seconds / 60 % 60, seconds % 60, time % 1'000'000);
}

std::string_view trim(std::string_view text) noexcept {
  constexpr std::string_view blanks = " \t\r\n";
  const auto begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    parts.push_back(text.substr(0, text.find(separator)));
    text.remove_prefix(std::min(parts.back().size() + 1, text.size()));
  }
  return parts;
}

std::string_view first_bytes(std::string_view text, std::size_t most) noexcept {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) --most;
  return text.substr(0, most);
}

namespace {

// Bytes of the character with which the text begins; 0 if it is a control character or no UTF-8
// (RFC 3629, section 4).
std::size_t character_bytes(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return first >= ' ' && first != 0x7f ? 1 : 0;
  if (first < 0xc2 || first > 0xf4) return 0;
  const std::size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (text.size() < bytes) return 0;
  for (std::size_t i = 1; i < bytes; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  // The second byte tells long forms of small codes, surrogates and codes beyond Unicode. After
  // 0xc2 it tells the control characters from 0x80 to 0x9f.
  const unsigned char least = first == 0xe0 || first == 0xc2 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  return byte(1) >= least && byte(1) <= most ? bytes : 0;
}

}  // namespace

std::string printable(std::string text) noexcept {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = character_bytes(std::string_view(text).substr(at));
    if (bytes == 0) text[at] = ' ';
    at += std::max<std::size_t>(bytes, 1);
  }
  return text;
}

std::string list_of_ranks(std::vector<int> ranks) {
  constexpr std::size_t most_parts = 16, shortest_row = 3;
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  std::size_t parts = 0;
  for (std::size_t i = 0; i < ranks.size(); ++parts) {
    if (parts == most_parts) return text + fmt::format(" and {} more", ranks.size() - i);
    std::size_t row = 1;
    while (i + row < ranks.size() && ranks[i + row] == ranks[i] + static_cast<int>(row)) ++row;
    if (row < shortest_row) row = 1;
    fmt::format_to(std::back_inserter(text), "{}{}", i == 0 ? "" : ", ", ranks[i]);
    if (row > 1) fmt::format_to(std::back_inserter(text), "-{}", ranks[i + row - 1]);
    i += row;
  }
  return text;
}

}  // namespace rondo::base
