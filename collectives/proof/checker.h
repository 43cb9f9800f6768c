// SPDX-License-Identifier: Apache-2.0
//
// Runs the schedules of all ranks with symbols in place of numbers, by the same rules as the engine
// (schedules/progress.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/schedules/schedule.h"

namespace rondo::proof {

struct CheckOptions {
  std::uint64_t segments = 1;
  std::uint32_t depth = 1;
  // How many frames a link may hold that the receiver has not taken yet. Every link promises 1. 0:
  // a send waits until its receiver takes it.
  std::uint32_t credits = 1;
  // A slice's value lies where this rank's input lay. This also covers buffers that are in place
  // only in part: they wait for no more than those that are in place everywhere.
  bool in_place = false;
  // Links read a payload until its receiver takes it, as they do with frames that are too large for
  // their own memory. Otherwise they copy it at once.
  bool held = false;
  bool expressions = false;  // also report in which order each slice is summed
};

struct CheckReport {
  // Empty: the schedules are right. Otherwise what is wrong, with rank, step and slice.
  std::string problem;
  std::vector<std::uint64_t> slices_sent;  // by rank, for one segment, tokens not counted
  std::uint64_t rounds = 0;                // longest chain of dependent frames of one segment
  // By slice, on request: "((0 + 1) + 2)". The two operands of an addition stand in a fixed order.
  std::vector<std::string> expressions;
  std::uint32_t most_frames_on_a_link = 0;  // for one segment, one direction
  bool ok() const noexcept { return problem.empty(); }
};

// Proves that
// - every final value has each contribution exactly once, and of the right slice;
// - all ranks that keep a slice use the same floating-point expression, up to commutation;
// - every slice that the operation promises is kept exactly once;
// - nothing deadlocks;
// - sends and receives of each link match, and no frame is left in a link;
// - no rank is done before every rank has begun;
// - no memory is written while a link reads it, and none is used once a peer may write to it.
// A pure function, thread-safe. Wrong arguments are reported as a problem.
CheckReport check(const std::vector<schedules::Schedule>& schedules, Collective operation, int root,
                  const CheckOptions& options = {});

}  // namespace rondo::proof
