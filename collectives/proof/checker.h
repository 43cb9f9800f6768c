// SPDX-License-Identifier: Apache-2.0
//
// Runs the schedules of all ranks symbolically, by the very rules that the engine runs
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
  // Frames that a link may hold sent but not yet taken by the receiver: 1 is what a link promises.
  // 0: a send waits until its receiver takes it.
  std::uint32_t credits = 1;
  // A slice's value lies where this rank's input lay. A buffer that is in place only in part waits
  // for no more than one that is in place everywhere.
  bool in_place = false;
  // Links read what they are given until its receiver takes it, as they do with frames too large
  // for their own memory. Otherwise they copy it at once.
  bool held = false;
  bool expressions = false;  // also write down in which order each slice is summed
};

struct CheckReport {
  std::string
      problem;  // empty: the schedules are right; else what is wrong, with rank, step and slice
  std::vector<std::uint64_t> slices_sent;   // by rank, for one segment, tokens not counted
  std::uint64_t rounds = 0;                 // longest chain of dependent frames of one segment
  std::vector<std::string> expressions;     // by slice, on request: "((0 + 1) + 2)", operands of an
                                            // addition in one fixed order
  std::uint32_t most_frames_on_a_link = 0;  // for one segment, one direction
  bool ok() const noexcept { return problem.empty(); }
};

// Proves: each contribution exactly once in every final value, and in the right slice; the same
// floating-point expression (up to commutation) on every rank that keeps a slice; every slice that
// the operation promises is kept, each once; no deadlock; sends and receives of each link match; no
// rank is done before every rank has begun; nothing left in a link; memory is written neither while
// a link reads it nor after a peer may write there.
CheckReport check(const std::vector<schedules::Schedule>& schedules, Collective operation, int root,
                  const CheckOptions& options = {});

}  // namespace rondo::proof
