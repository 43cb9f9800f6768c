// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tools/trace/dumps.h"

namespace rondo::tools {

// shift[i] turns a time of dumps[i] into seconds since dumps[0] was written.
//
// Dumps with one clock_id share a clock. The offset between two clocks is bounded by collectives in
// which every rank needs all others: none ends on a rank before all have called it. So for ranks a
// and b: called_a <= ended_b and called_b <= ended_a. The shift is the middle of the interval that
// all such calls leave. Without them it is what the wall clocks say. `findings` get the error of
// each clock.
struct CommonClock {
  CommonClock(const std::vector<Dump>& dumps, TraceFindings& findings);

  std::vector<double> shift;
};

}  // namespace rondo::tools
