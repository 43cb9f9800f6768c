// SPDX-License-Identifier: Apache-2.0
//
// Computes what a communicator needs from the limits of its process, and checks that the limits
// allow it. The table of docs/reference/limits.md comes from these functions;
// tests/issues/descriptors_test.cc checks them. Thread-safe.
#pragma once

#include <cstddef>
#include <string>

#include "base/own_descriptors.h"
#include "lib/rendezvous/rendezvous.h"

namespace rondo::lib {

struct DescriptorShape {
  int ranks = 1;
  int rank = 0;
  int shm_peers = 0;      // other ranks that are reached through shared memory
  int tcp_peers = 0;      // other ranks that are reached over tcp
  int tcp_addresses = 1;  // addresses at which this rank listens
  int connections = 1;    // tcp connections of a link to one peer
  int rdma_peers = 0;     // other ranks that are reached over rdma
  int rdma_devices = 0;   // 0: rdma is not allowed, or there is none
  bool shm = true;        // the transport is allowed, whether or not it reaches a rank
  bool tcp = true;
};

struct DescriptorNeeds {
  std::size_t join = 0;     // at most, until all ranks have joined
  std::size_t connect = 0;  // at most before connect() returns: also to share memory
  std::size_t idle = 0;     // after connect()
  std::size_t most = 0;     // when every link of every lane has been used
};
// How many transports set links up over tcp once connect() has returned: tcp, and rdma with
// devices. Each has a thread and listens.
std::size_t users_of_tcp(const DescriptorShape& shape) noexcept;
// Descriptors of the links to these peers, when all lanes have been used. Links open when they are
// first used.
std::size_t descriptors_of_links(const DescriptorShape& shape) noexcept;
// Does not count allocate(), which takes one for this rank's memory and one for each peer on the
// host that has allocated.
DescriptorNeeds descriptors_of(const DescriptorShape& shape) noexcept;

// Returns how many descriptors this process has open.
std::size_t open_descriptors();

// Descriptors that a communicator may open later. While the object lives, reserve_descriptors()
// leaves room for them, open or not. So the limit may become higher than it must be. A forked child
// begins with none.
class LaterDescriptors {
 public:
  LaterDescriptors() noexcept = default;
  ~LaterDescriptors();
  LaterDescriptors(const LaterDescriptors&) = delete;
  LaterDescriptors& operator=(const LaterDescriptors&) = delete;
  void set(std::size_t count);

 private:
  std::size_t count_ = 0;
  const unsigned generation_ = base::process_generation();
};

// Makes sure that the process can open `necessary` more descriptors, and `wanted` if the hard limit
// (RLIMIT_NOFILE) allows it. Raises the soft limit for that, plus what other communicators may
// still open and 64 for the rest of the program. Throws Error(system), which says what to set, if
// `necessary` is too many. `what` says who needs them: "joining as rank 0 of 64".
void reserve_descriptors(std::size_t necessary, std::size_t wanted, const std::string& what);

// Warns if more than half of the descriptors that the hard limit allows are open; once in a
// process. `what` says who has just opened many: "rank 0 of 4 after split 7".
void warn_when_short_of_descriptors(const std::string& what);

// Calls reserve_descriptors() for a rank that is about to join. later: all that the rank may need
// is set here, so that communicators that join at the same time count each other.
void reserve_descriptors_to_join(const rendezvous::Place& place, const Options& options,
                                 LaterDescriptors& later);

}  // namespace rondo::lib
