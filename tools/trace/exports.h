// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/records/record_file.h"
#include "tools/trace/findings.h"

namespace rondo::tools {

// Trace events for ui.perfetto.dev: a process for each rank, tracks for each lane. Calls that
// overlap are on several tracks. shifts: those of shifts_of_clocks().
std::string trace_events(const Dumps& dumps, const std::vector<double>& shifts);

// dumps[i] as PyTorch's flight recorder writes it, version 2.10, for torchfrtrace. That program
// pairs calls from the beginning, so a lane begins with the first call that all rings hold. Adds to
// `left_out` the names of operations that it does not know or cannot pair.
Json torch_trace(const Dumps& dumps, std::size_t i, double shift,
                 std::vector<std::string>& left_out);

// A pickle of protocol 2 that needs no imports. Texts must be UTF-8.
std::string pickle(const Json& value);

}  // namespace rondo::tools
