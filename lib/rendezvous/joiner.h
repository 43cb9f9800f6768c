// SPDX-License-Identifier: Apache-2.0
//
// The joiner: the side of the ranks other than 0. Thread-bound to the thread that connects.
#pragma once

#include "lib/rendezvous/rank_zero.h"

namespace rondo::rendezvous {

// Finds rank 0 and connects, again and again until the deadline. Then proves the secret, sends the
// record and waits for the records of all ranks. Throws Error, with rank 0's cause if it gave one.
JoinResult join_rank_zero(const Place& place, const Options& options,
                          const transports::Blob& record);

// For a rank that cannot join: tells rank 0 by place.deadline and returns the cause that rank 0
// sends to all. Looks for rank 0 until then if persistent, else once. Throws Error if rank 0 cannot
// be found.
operation::Failure report_to_rank_zero(const Place& place, const Options& options,
                                       const operation::Failure& failure, bool persistent = true);

}  // namespace rondo::rendezvous
