// SPDX-License-Identifier: Apache-2.0
//
// Ranks of one host, through memory that they share: each makes one segment (a memfd, no name
// anywhere) and hands it to the others over Unix sockets in the abstract name space. What a rank
// has to say it writes into its own segment; the others only read that.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "transports/transport.h"

namespace rondo::shm {

struct Options {
  int rank = 0;
  int size = 1;
  std::string secret;  // empty: reaches only ranks of the same user
  std::string host;    // base::host_identity() of this rank
  // Of start(), which meets all ranks of this host.
  base::TimePoint deadline = base::TimePoint::max();
};

// Listens at once. When this process can do nothing of that (no memfd, no socket), the address is
// empty and no rank is reached.
//
// start() returns when this rank and every other one that is reached have exchanged their segments:
// all of them must call it at about the same time. Throws Error: peer_lost when one of them ends
// meanwhile, authentication, deadline_exceeded, rendezvous, system.
std::unique_ptr<transports::Transport> make_shm(const Options& options);

// Why shared memory cannot be used in this process; empty when it can.
std::string obstacle();

}  // namespace rondo::shm
