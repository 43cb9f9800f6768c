// SPDX-License-Identifier: Apache-2.0
//
// What a communicator needs of the limits of its process, and the check that they allow it. The
// table of docs/limits.md comes from these functions, and tests/issues/descriptors_test.cc checks
// them.
#pragma once

#include <cstddef>
#include <string>

#include "lib/rendezvous/rendezvous.h"

namespace rondo::lib {

struct DescriptorShape {
  int ranks = 1;
  int rank = 0;
  int shm_peers = 0;      // other ranks that are reached through shared memory
  int tcp_peers = 0;      // other ranks that are reached over tcp
  int tcp_addresses = 1;  // at which this rank listens
  int connections = 1;    // tcp connections of a link to one peer
  bool shm = true;        // the transport is there, whether or not it reaches anybody
  bool tcp = true;
};

struct DescriptorNeeds {
  std::size_t join = 0;     // until all have met at the rendezvous
  std::size_t connect = 0;  // at most before connect() returns: also for sharing memory
  std::size_t idle = 0;     // after connect()
  std::size_t most = 0;     // when every link of every lane has been used
};
// Without allocate(): one for this rank's memory, one for each rank of the host that has allocated.
DescriptorNeeds descriptors_of(const DescriptorShape& shape) noexcept;

// Descriptors that this process has open.
std::size_t open_descriptors();

// Makes sure that the process can open `necessary` more descriptors, and `wanted` where the hard
// limit (RLIMIT_NOFILE) allows it; raises the soft limit for that. Throws Error(system), which says
// what to set, when `necessary` is too many. `what` is who needs them: "rank 0 of 64 to join".
void reserve_descriptors(std::size_t necessary, std::size_t wanted, const std::string& what);

// Warns, once in a process, when more than half of the descriptors that its hard limit allows are
// open. `what` is who has just opened many: "rank 0 of 4 after split 7". Thread-safe.
void warn_when_short_of_descriptors(const std::string& what);

// Calls reserve_descriptors() for joining. Thread-safe.
void reserve_descriptors_to_join(const rendezvous::Place& place, const Options& options);

}  // namespace rondo::lib
