// SPDX-License-Identifier: Apache-2.0
//
// Draws records: bandwidth and times over sizes, and a soak over time.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tools/plots/chart.h"
#include "tools/records/read.h"

namespace rondo::tools {

enum class Part : unsigned char { all, bandwidth, latency };

// Benchmarks share their charts, a line for each operation and record. Each soak has its own.
std::vector<Chart> charts_of(std::span<const Record> records, Part part);

// The pictures of all records in the order in which they are shown.
std::vector<Picture> pictures_of(std::span<const Record> records, Part part);

// Pictures one below the other, as a file.
std::string one_below_the_other(const std::vector<Picture>& pictures);

// The shortest names that tell the records apart: "a" for dir/a.json.
std::vector<std::string> names_of(std::span<const Record> records);

}  // namespace rondo::tools
