// SPDX-License-Identifier: Apache-2.0
//
// Small pieces of text that messages and settings share. Reentrant.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace rondo::base {

// "64 MiB", "1.5 KiB", "10 B": at most four significant digits.
std::string describe_bytes(std::uint64_t bytes);
// "connection refused": the text of an errno for use within a sentence, its first letter in lower
// case unless an abbreviation begins it.
std::string describe_errno(int number);
// Leaves out blanks, tabs and line ends at both ends.
std::string_view trim(std::string_view text) noexcept;
// Reads the whole text as a number. No value when it is not a number, or not one that fits in T.
template <class T>
std::optional<T> parse_whole(std::string_view text) noexcept {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace rondo::base
