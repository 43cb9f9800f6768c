// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <rondo/error.h>
#include <rondo/types.h>

namespace rondo::engine {

// Why a communicator came to its end. `cause` is a clause that reads well behind "all_reduce #41
// (...): ", the same text on every rank: "rank 2 lost rank 3 at 10.0.0.7:41022: connection reset by
// peer".
struct Failure {
  Errc code = Errc::aborted;
  std::string cause;
  // The rank whose link or connection has ended; -1: none. When that rank has left in order, its
  // leaving is the cause.
  int lost = -1;
};

// The failure when a rank has destroyed its communicator in order after these operations, by lane.
// The same words on every rank and in every lane.
Failure left_failure(int rank, std::span<const std::uint64_t, lane_count> finished);

// Where a rank stands in one lane. Operations are numbered from 1 in each lane; 0 is "none yet".
struct LaneStatus {
  std::uint64_t started = 0;
  std::uint64_t finished = 0;  // all operations up to this one
  std::string current;  // "all_reduce #41 (64 MiB f32 sum)": the oldest unfinished; empty when
                        // there is none
  std::string last;     // likewise the newest finished one
  std::vector<int> waiting_for;  // ranks whose frames the oldest unfinished operation lacks
  std::string tag = {};  // of the oldest unfinished operation, and how long ago it was called
  std::uint64_t waited_ns = 0;
};

struct RankStatus {
  LaneStatus lanes[lane_count];
  LaneStatus messages = {};  // between two ranks: current, waiting_for, tag and waited_ns, for they
                             // have no numbers in common
};

}  // namespace rondo::engine
