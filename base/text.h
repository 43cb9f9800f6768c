// SPDX-License-Identifier: Apache-2.0
//
// Small pieces of text that messages and settings share. Reentrant.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace rondo::base {

// "64 MiB", "1.5 KiB", "10 B": at most four significant digits.
std::string describe_bytes(std::uint64_t bytes);
// "connection refused": the text of an errno for use within a sentence, its first letter in lower
// case unless an abbreviation begins it.
std::string describe_errno(int number);
// "2026-11-30T22:36:14.123456Z", from microseconds since 1970. For any number: the calendar of
// today goes on in both directions.
std::string format_utc(std::int64_t microseconds);
// Leaves out blanks, tabs and line ends at both ends.
std::string_view trim(std::string_view text) noexcept;
// "a,b,": a and b. A separator at the end adds no part, others may be empty.
std::vector<std::string_view> split(std::string_view text, char separator);
// Writes the items one after the other, as fmt does, with the separator between them.
template <class Items>
std::string join(const Items& items, std::string_view separator) {
  std::string text;
  bool first = true;
  for (const auto& item : items) {
    if (!std::exchange(first, false)) text += separator;
    text += fmt::format("{}", item);
  }
  return text;
}
// Returns the first `most` bytes, or less: a character of UTF-8 is not cut.
std::string_view first_bytes(std::string_view text, std::size_t most) noexcept;
// Makes text from outside fit for a line on a terminal: control characters, and bytes that are not
// UTF-8, become blanks. The length stays.
std::string printable(std::string text) noexcept;
// Reads the whole text as a number. No value when it is not a number, or not one that fits in T.
template <class T>
std::optional<T> parse_whole(std::string_view text) noexcept {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}
// Names ranks in a message: "rank 3", "ranks 1, 2, 5", and three or more in a row as
// "ranks 1, 4-6". After 16 such parts it ends with the number of ranks left: " and 40 more". Order
// and repetition of `ranks` do not matter.
std::string list_of_ranks(std::vector<int> ranks);

// "00ff7e", two digits for each byte.
inline std::string hex(std::span<const unsigned char> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

}  // namespace rondo::base
