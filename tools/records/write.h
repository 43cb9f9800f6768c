// SPDX-License-Identifier: Apache-2.0
//
// The members of a record, version 1: docs/reference/records.md says what each means, and
// docs/reference/record.schema.json checks them.
#pragma once

#include <string>
#include <vector>

#include "tools/measure/row.h"
#include "tools/records/record_file.h"
#include "tools/records/setting.h"

namespace rondo::tools {

inline constexpr int record_version = 1;

// The members before the results. kind: "bench", "pairs" or "soak".
Json head_of(const Setting& setting, const std::string& kind);
// One result of a benchmark.
Json row_of(const Setting& setting, const Row& row);
// The columns of the CSV file of a benchmark.
std::vector<std::string> columns_of(const Setting& setting);

}  // namespace rondo::tools
