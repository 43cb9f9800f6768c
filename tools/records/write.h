// SPDX-License-Identifier: Apache-2.0
//
// The setting of all rows of a run, and the members of a record, version 1:
// docs/reference/records.md says what each means, and docs/reference/record.schema.json checks
// them.
#pragma once

#include <rondo/info.h>

#include <string>
#include <string_view>
#include <vector>

#include "tools/measure/conditions.h"
#include "tools/measure/gpu.h"
#include "tools/measure/operation.h"
#include "tools/measure/row.h"
#include "tools/ranks/bind.h"
#include "tools/records/hosts.h"
#include "tools/records/record_file.h"

namespace rondo::tools {

struct Setting {
  std::vector<std::string> command;  // as the user typed it
  std::string time;                  // when the run began: "2026-11-27T14:03:03Z"
  std::vector<Operation> operations;
  std::string transport;
  int ranks = 1;
  Bound bound = Bound::none;      // rank 0, by its affinity mask
  base::ProcessorSet processors;  // of this mask
  Conditions conditions;
  bool direct = false;            // the algorithm was set
  const BenchGpu* gpu = nullptr;  // of rank 0; null: the buffers are in host memory
  std::vector<HostRecord> hosts;
  std::vector<VariableInfo> environment;  // of rank 0, without secrets
};

// How operations move bytes of a GPU.
inline std::string_view gpu_staging(const Setting& setting) noexcept {
  if (!setting.direct) return "pinned host memory";
  return setting.conditions.allocate ? "pinned host memory up to 16 KiB"
                                     : "pinned host memory up to 16 KiB and slots of the GPU";
}

// Now, in UTC.
std::string now_in_words();

inline constexpr int record_version = 1;

// The members before the results. kind: "bench", "pairs" or "soak".
Json head_of(const Setting& setting, const std::string& kind);
// One result of a benchmark.
Json row_of(const Setting& setting, const Row& row);
// The columns of the CSV file of a benchmark.
std::vector<std::string> columns_of(const Setting& setting);

}  // namespace rondo::tools
