// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <rondo/error.h>
#include <rondo/types.h>

namespace rondo::operation {

// Why a communicator has failed. `cause` is the same text on every rank: "rank 2 lost rank 3 at
// 10.0.0.7:41022: connection reset by peer". Messages have it behind "all_reduce #41 (...): ".
struct Failure {
  Errc code = Errc::aborted;
  std::string cause;
  // The rank whose link or connection has ended; -1: none. If the control plane knows that this
  // rank has left in order, that becomes the cause.
  int lost = -1;
  std::vector<int> culprits = {};  // ranks to blame, as far as that is known
  int seen_by = -1;                // the rank that saw it first-hand; -1: not known
  std::string link = {};           // "tcp 10.0.0.7:41022", where it was seen; else empty
};

// The failure when a rank has destroyed its communicator in order. finished: its last operation in
// each lane. The text is the same on every rank and in every lane.
Failure left_failure(int rank, std::span<const std::uint64_t, lane_count> finished);
// The failure when this rank has no memory left or a system call fails.
Failure cannot_go_on(int rank, const std::exception& error);

// Where a rank stands in one lane. Operations are numbered from 1 in each lane; 0 is "none yet".
struct LaneStatus {
  std::uint64_t started = 0;
  std::uint64_t finished = 0;  // all operations up to this one
  // The oldest unfinished operation: "all_reduce #41 (64 MiB f32 sum)". Empty when there is none.
  std::string current;
  std::string last;              // the newest finished one, likewise
  std::vector<int> waiting_for;  // ranks that `current` waits for
  std::string tag = {};          // OpOptions::tag of `current`
  std::uint64_t waited_ns = 0;   // since `current` was called
  // Work of this rank's own device that `current` waits for (DeviceMemory::awaited()); else empty.
  std::string device = {};
};

struct RankStatus {
  LaneStatus lanes[lane_count];
  // Messages between two ranks: only current, waiting_for, waited_ns and device are set. Ranks have
  // no numbers of messages in common, and OpOptions::tag already stands in `current`: `receive #3
  // "answer" (8 f32 from rank 0, tag 7)`. So `tag` stays empty.
  LaneStatus messages = {};
};

}  // namespace rondo::operation
