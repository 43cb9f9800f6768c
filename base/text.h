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

// "64 MiB", "1.5 KiB", "10 B"
std::string describe_bytes(std::uint64_t bytes);
// "connection refused": an errno in small letters, as it stands within a sentence.
std::string describe_errno(int number);
// Without blanks, tabs and ends of lines at both ends.
std::string_view trim(std::string_view text) noexcept;
// The number that the whole text is; no value for anything else, or for one that T does not hold.
template <class T>
std::optional<T> parse_whole(std::string_view text) noexcept {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace rondo::base
