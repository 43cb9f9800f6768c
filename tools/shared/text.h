// SPDX-License-Identifier: Apache-2.0
//
// Reads what users type, and formats what they see.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace rondo::tools {

// An error in what the user typed. main() prints it and ends with status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// "64M" -> 67108864; the suffixes K, M, G, T (also KiB, MB ...) are powers of 1024, as in
// nccl-tests. Throws UsageError that names the flag.
std::uint64_t parse_bytes(std::string_view flag, std::string_view text);
// A whole number from first to last. Throws UsageError that names the flag and the range.
std::uint64_t parse_number(std::string_view flag, std::string_view text, std::uint64_t first,
                           std::uint64_t last);
// Likewise for a range that an int holds.
int parse_int(std::string_view flag, std::string_view text, std::uint64_t first,
              std::uint64_t last);
// A number above zero, which may have a fraction. Throws UsageError that names the flag.
double parse_positive(std::string_view flag, std::string_view text);

std::vector<std::string> split(std::string_view text, char separator);
std::string join(const std::vector<std::string>& words, std::string_view between = ", ");

// Throws UsageError: what was given is none of the possible words. Names the one that is like it.
[[noreturn]] void refuse_unknown(std::string_view what, std::string_view given,
                                 const std::vector<std::string>& possible);
// "; did you mean bench?" when one of the names differs by few letters, else nothing.
std::string suggest(std::string_view word, const std::vector<std::string>& names);

// Reads "50us", "1.5ms", "2s", "300ns" or "0". Returns seconds. Throws UsageError that names the
// flag.
double parse_seconds(std::string_view flag, std::string_view text);
// Reads a time above zero, in seconds or with a unit: "3600", "90s", "10m", "1h". Returns seconds.
double parse_duration(std::string_view flag, std::string_view text);
// Reads a rate above zero: "953mbit", "1gbit" in bits per second, "119MB", "1.25GB" in bytes per
// second, with powers of 1000. Returns bytes per second. Throws UsageError that names the flag.
double parse_rate(std::string_view flag, std::string_view text);

// "12.5 us", "3.2 ms"
std::string format_seconds(double seconds);

}  // namespace rondo::tools
