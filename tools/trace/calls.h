// SPDX-License-Identifier: Apache-2.0
//
// Compares the calls of the ranks.
#pragma once

#include "tools/trace/dumps.h"

namespace rondo::tools {

// For each lane of collectives: the first number for which the ranks made different calls, or which
// a rank has not called while others wait in it. Says so when a rank left out a call.
void find_differences(const std::vector<Dump>& dumps, TraceFindings& findings);

// A receive that waits without a send, and a send that waits without a receive.
void find_lone_messages(const std::vector<Dump>& dumps, TraceFindings& findings);

}  // namespace rondo::tools
