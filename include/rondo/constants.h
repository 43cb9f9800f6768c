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

// The costs in the planner's formulas (docs/planner.md), in seconds.
struct PlanConstants {
  PlanLinkCosts host;     // between ranks of one host
  PlanLinkCosts network;  // between hosts
  double reduce_seconds_per_byte = 0;
};

// Returns the constants that are used if nothing was measured.
RONDO_API PlanConstants default_constants() noexcept;
// Reads a file that holds the output of format_constants(). Throws Error(invalid_argument), which
// names the file and what is wrong with it.
RONDO_API PlanConstants read_constants(const std::string& path);
// Returns the constants as JSON, for a file.
RONDO_API std::string format_constants(const PlanConstants& constants);

}  // namespace rondo
