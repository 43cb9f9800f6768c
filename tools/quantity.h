// SPDX-License-Identifier: Apache-2.0
//
// Times and rates as users type and see them.
#pragma once

#include <string>
#include <string_view>

namespace rondo::tools {

// "50us", "1.5ms", "2s", "300ns", "0": seconds. Throws UsageError that names the flag.
double parse_seconds(std::string_view flag, std::string_view text);
// "953mbit", "1gbit" in bits, "119MB", "1.25GB" in bytes, per second; powers of 1000: bytes per
// second. Above zero.
double parse_rate(std::string_view flag, std::string_view text);

// "12.5 us", "3.2 ms"
std::string format_seconds(double seconds);

}  // namespace rondo::tools
