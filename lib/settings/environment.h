// SPDX-License-Identifier: Apache-2.0
//
// Reads environment variables and checks their bounds. An error is Error(invalid_argument), which
// names the variable, its value and what is possible. A variable whose value is empty or blank
// counts as not set.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rondo::settings {

std::optional<std::string> variable(const char* name);
std::optional<std::int64_t> whole_variable(const char* name, std::int64_t least, std::int64_t most);
// "0.5", "30": seconds, at least a millisecond.
std::optional<std::chrono::milliseconds> seconds_variable(const char* name);
// "65536", "64K", "16M", "1G" (powers of 1024; an i, B or iB behind the letter changes nothing).
std::optional<std::size_t> bytes_variable(const char* name);
// 0 1 false true no yes off on
std::optional<bool> switch_variable(const char* name);
// "a,b,c": drops blanks around the parts, and empty parts.
std::optional<std::vector<std::string>> list_variable(const char* name);

// "42000-42099" or one port.
std::optional<std::pair<std::uint16_t, std::uint16_t>> port_range_variable(const char* name);

// Throws Error(invalid_argument): "NAME is 'value': WHY".
[[noreturn]] void refuse_variable(const char* name, std::string_view value, const std::string& why);

// Returns RONDO_SECRET or the contents of the file RONDO_SECRET_FILE; empty if neither is set.
std::string secret_from_environment();

}  // namespace rondo::settings
