// SPDX-License-Identifier: Apache-2.0
//
// Rank 0's side of the rendezvous. Thread-bound to the thread that connects.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/rendezvous/rendezvous.h"
#include "lib/wire/stream.h"

namespace rondo::rendezvous {

// The result of a join: the job, the records of all ranks, and the connections over which they
// came.
struct JoinResult {
  std::uint64_t job = 0;
  std::vector<transports::Blob> records;  // by rank
  // On rank 0: all records as frames. Streams may still have to send parts of it.
  transports::Blob members;
  std::vector<wire::Stream> streams;  // on rank 0: of ranks 1, 2, ...; elsewhere: the one to rank 0
};

// A random number other than 0.
std::uint64_t fresh_job();

// Listens until all ranks have come or the earliest deadline of a rank that came has passed. Then
// all ranks that came get the same answer. Throws Error with the ranks that are missing.
JoinResult accept_all_ranks(const Place& place, const Options& options,
                            const transports::Blob& record);

// For a rank 0 that cannot join: tells the ranks that come by `until`, and returns when all have
// been told. If another rank failed earlier, returns the cause of that rank.
operation::Failure refuse_all(const Place& place, const Options& options,
                              const operation::Failure& failure, base::TimePoint until);

}  // namespace rondo::rendezvous
