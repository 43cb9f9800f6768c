// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/records/record_file.h"
#include "tools/trace/clocks.h"

namespace rondo::tools {

// Trace events for ui.perfetto.dev: a process for each rank, tracks for each lane. Calls that
// overlap are on several tracks.
std::string trace_events(const std::vector<Dump>& dumps, const CommonClock& clock);

// The dump as PyTorch's flight recorder writes it, version 2.10, for torchfrtrace. `dumps` are
// those of all ranks: a lane begins with the first call that all rings hold, because the program
// pairs calls from the beginning. Adds to `left_out` the names of operations that the program does
// not know.
Json torch_trace(const std::vector<Dump>& dumps, const Dump& dump, double shift,
                 std::vector<std::string>& left_out);

// A pickle of protocol 2 that needs no imports to be read. Texts must be UTF-8.
std::string pickle(const Json& value);

}  // namespace rondo::tools
