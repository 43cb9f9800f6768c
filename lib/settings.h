// SPDX-License-Identifier: Apache-2.0
//
// Everything that may be set in a field of Options, in a variable, or not at all: one row each in settings.cc. A row says the variable,
// the default, and whether all ranks must have the same value.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <rondo/options.h>

#include "base/bytes.h"

namespace rondo {

inline constexpr std::chrono::milliseconds default_connect_deadline{30'000}, default_deadline{300'000};
inline constexpr std::size_t default_staging_bytes = std::size_t{16} << 20;

// Fills in every field that is not set, from its variable or else with the default; but not rank, size, rendezvous and secret, which
// resolve_place() settles together with the launcher's variables. Throws Error(invalid_argument).
Options with_environment(Options options);

// Variable and value of what is not the default, in the order of the table.
using Settings = std::vector<std::pair<std::string, std::string>>;
// All of them, for the log.
Settings settings_in_force(const Options& options);
// Those that all ranks must share.
Settings shared_settings(const Options& options);

// settings := count:u8 {variable:string value:string}*           ; bounded: 64 bytes, 256 bytes
void put_settings(Writer& writer, const Settings& settings);
Settings get_settings(Reader& reader);

// Throws Error(mismatch) when ranks differ: "RONDO_ALGORITHM: ring on rank 0, doubling on ranks 1, 2". Every rank that compares the same
// settings throws the same.
void compare_settings(std::span<const Settings> by_rank);

// The variables of the table.
std::vector<std::string_view> variables_of_settings();

}  // namespace rondo
