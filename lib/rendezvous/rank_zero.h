// SPDX-License-Identifier: Apache-2.0
//
// Rank 0's side of the rendezvous.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/rendezvous/rendezvous.h"
#include "lib/rendezvous/stream.h"

namespace rondo::rendezvous {

// What the joining leaves behind: the job, everybody's record, and the connections over which they
// came.
struct JoinResult {
  std::uint64_t job = 0;
  std::vector<transports::Blob> records;  // by rank
  transports::Blob members;  // on rank 0: everybody's record as frames; streams may still have to
                             // send parts of it
  std::vector<Stream> streams;  // on rank 0: of ranks 1, 2, ...; elsewhere: the one to rank 0
};

// A random number other than 0.
std::uint64_t fresh_job();

// Listens until all have come or the earliest deadline of those who came has passed; then all who
// came hear the same.
JoinResult accept_all_ranks(const Place& place, const Options& options,
                            const transports::Blob& record);

// For a rank 0 that cannot join: tells the ranks that come by `until`, and returns when all have
// been told. When another rank failed earlier, returns its cause.
engine::Failure refuse_all(const Place& place, const Options& options,
                           const engine::Failure& failure, base::TimePoint until);

}  // namespace rondo::rendezvous
