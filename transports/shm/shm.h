// SPDX-License-Identifier: Apache-2.0
//
// Joins ranks of one host through memory that they share. Each makes one segment (a memfd without a
// name) and sends it to the others over Unix sockets in the abstract name space. A rank writes only
// to its own segment; the others only read it, and ring its bell (bell.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "transports/transport.h"

namespace rondo::shm {

struct Options {
  int rank = 0;
  int size = 1;
  std::string secret;  // empty: reaches only ranks of the same user
  std::string host;    // base::host_identity() of this rank
  // For start(), which waits for all ranks of this host.
  base::TimePoint deadline = base::TimePoint::max();
  // The driver understands WakeSource::word. The transport then has one if this rank reaches
  // all others, and keeps one descriptor for each of them.
  bool may_sleep_on_word = false;
};

// The transport for shared memory; it listens at once. If this process cannot share memory (no
// memfd, no socket), its address is empty and it reaches no rank.
//
// start() returns when this rank has exchanged segments with every other rank that it reaches, so
// all of them must call it at about the same time. It throws Error: peer_lost when one of them ends
// meanwhile, authentication, deadline_exceeded, rendezvous, system.
std::unique_ptr<transports::Transport> make_shm(const Options& options);

// Makes a start() of this transport that waits for other ranks end with Error(rendezvous) and this
// text. Does nothing to another transport. Thread-safe.
void interrupt(transports::Transport& transport, std::string_view why) noexcept;

// Tells whether ranks share a core: for a rank that waits on this core (a number of
// sched_getcpu()). It publishes the core to the ranks of this host, and returns whether one of
// those that `ranks` names (transports::wake_bit()), awake, last waited there; no value before
// start() has ended. Empty for another transport. Thread-bound (the driver of the transport, which
// outlives it).
using CoreCheck = std::function<std::optional<bool>(int core, std::uint64_t ranks)>;
CoreCheck core_check(transports::Transport& transport);

// Why shared memory cannot be used in this process; empty when it can.
std::string obstacle();

}  // namespace rondo::shm
