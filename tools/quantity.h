// SPDX-License-Identifier: Apache-2.0
//
// Reads and prints times and rates as users type and see them.
#pragma once

#include <string>
#include <string_view>

namespace rondo::tools {

// Reads "50us", "1.5ms", "2s", "300ns" or "0". Returns seconds. Throws UsageError that names the
// flag.
double parse_seconds(std::string_view flag, std::string_view text);
// Reads a rate above zero: "953mbit", "1gbit" in bits per second, "119MB", "1.25GB" in bytes per
// second, with powers of 1000. Returns bytes per second. Throws UsageError that names the flag.
double parse_rate(std::string_view flag, std::string_view text);

// "12.5 us", "3.2 ms"
std::string format_seconds(double seconds);

}  // namespace rondo::tools
