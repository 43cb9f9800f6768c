// SPDX-License-Identifier: Apache-2.0
//
// The table of all settings that have a field of Options and a variable. A row in settings.cc has
// the variable, the default, and whether all ranks must have the same value.
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
#include "base/handshake.h"
#include "collectives/engine/waiting.h"

namespace rondo::settings {

inline constexpr std::chrono::milliseconds default_connect_deadline{30'000},
    default_deadline{300'000};
inline constexpr std::chrono::milliseconds default_metrics_period{5'000};
inline constexpr std::size_t default_staging_bytes = std::size_t{16} << 20;

// Fills in every field that is not set, from its variable or with the default. Leaves out rank,
// size, rendezvous and secret, which resolve_place() takes from the launcher as well. If a value
// cannot be, its field stays not set; all others are filled in, because they are needed to tell the
// other ranks. Then it throws Error(invalid_argument) for the first of them.
void fill_from_environment(Options& options);
Options with_environment(Options options);

// Reads Options::integrity or RONDO_INTEGRITY. If ranks differ, the stronger protection counts,
// connection by connection. Throws Error(invalid_argument).
base::Protection protection_of(const Options& options);

// Reads Options::wait or RONDO_WAIT. Throws Error(invalid_argument).
engine::WaitMode wait_mode_of(const Options& options);

// Variable and value of each setting that differs from its default, in the order of the table.
using Settings = std::vector<std::pair<std::string, std::string>>;
// All such settings, for the log.
Settings settings_in_force(const Options& options);
// The settings that all ranks must share.
Settings shared_settings(const Options& options);

// settings := count:u8 {variable:string value:string}*           ; bounded: 64 bytes, 256 bytes
void put_settings(base::Writer& writer, const Settings& settings);
Settings get_settings(base::Reader& reader);

// Throws Error(mismatch) if ranks differ: "RONDO_ALGORITHM: ring on rank 0, doubling on ranks 1,
// 2". The same settings give the same message on every rank.
void compare_settings(std::span<const Settings> by_rank);

// The names of the variables in the table.
std::vector<std::string_view> variables_of_settings();

}  // namespace rondo::settings
