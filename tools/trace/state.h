// SPDX-License-Identifier: Apache-2.0
//
// What the dumps say without comparing calls.
#pragma once

#include "tools/trace/clocks.h"

namespace rondo::tools {

// From the dump that knows most: that of rank 0, if it has what rank 0 heard from others. Says also
// whose dump has another verdict.
void find_verdict(const std::vector<Dump>& dumps, TraceFindings& findings);
// Where the ranks stand in each lane: a line for all that stand alike.
void find_standing(const std::vector<Dump>& dumps, TraceFindings& findings);
// The ranks that others waited for most often.
void find_late(const std::vector<Dump>& dumps, TraceFindings& findings);

}  // namespace rondo::tools
