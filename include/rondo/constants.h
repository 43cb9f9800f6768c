// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <rondo/export.h>

namespace rondo {

// Costs of a kind of link, in seconds, with the letters of docs/reference/planner.md. The default
// is tcp over loopback.
struct PlanLinkCosts {
  double latency_s = 8e-6;  // a: one frame, end to end
  // b: one direction of a link; between hosts, of all links of a host together.
  double seconds_per_byte = 4e-10;
  // f: one more frame, for its sender and for its receiver, not overlapped.
  double frame_s = 3e-6;
};

// The costs in the planner's formulas, in seconds. The default holds if nothing was measured.
struct PlanConstants {
  PlanLinkCosts host = {};                       // between ranks of one host
  PlanLinkCosts network = {5e-5, 8.4e-9, 5e-6};  // between hosts; the default: Ethernet, 1 Gbit/s
  double reduce_seconds_per_byte = 5e-11;        // g: combining two sources
};

// Returns the default constants of the library, which may be newer than this header.
RONDO_API PlanConstants default_constants() noexcept;
// Reads a file that holds the output of format_constants(). Throws Error(invalid_argument), which
// names the file and what is wrong with it.
RONDO_API PlanConstants read_constants(const std::string& path);
// Returns the constants as JSON, for a file.
RONDO_API std::string format_constants(const PlanConstants& constants);

}  // namespace rondo
