// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <rondo/export.h>

namespace rondo {

// What a kind of link costs, in seconds.
struct PlanLinkCosts {
  double latency_s = 0;         // one frame, end to end
  double seconds_per_byte = 0;  // in one direction
  double frame_s = 0;           // one more frame, for its sender and for its receiver
};

// What the planner's formulas stand on (docs/planner.md).
struct PlanConstants {
  PlanLinkCosts host;     // between ranks of one host
  PlanLinkCosts network;  // between hosts
  double reduce_seconds_per_byte = 0;
};

// Those that hold where nothing has been measured.
RONDO_API PlanConstants default_constants() noexcept;
// From a file that holds what format_constants() gives. Throws Error(invalid_argument) that names
// the file and what is wrong with it.
RONDO_API PlanConstants read_constants(const std::string& path);
RONDO_API std::string format_constants(const PlanConstants& constants);

}  // namespace rondo
