// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "tools/records/read.h"

namespace rondo::tools {

// Bytes of raw records that a page holds, at most. What does not fit is named with its path.
inline constexpr std::size_t most_raw_bytes = std::size_t{5} << 20;
// Rows of a table, at most: an hour of soak has 3600 intervals, which nobody reads.
inline constexpr std::size_t most_table_rows = 2000, most_intervals = 200;

// An HTML page of the records: pictures, tables, machines, and the records themselves. It needs no
// network and no JavaScript, and is also well-formed XML.
std::string page_of(std::span<const Record> records);

}  // namespace rondo::tools
