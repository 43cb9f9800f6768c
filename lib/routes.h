// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <rondo/communicator.h>

#include "lib/connect.h"
#include "lib/needs.h"
#include "lib/record.h"
#include "lib/rendezvous/rendezvous.h"
#include "transports/transport.h"

namespace rondo::lib {

// The transports of a communicator, and which of them reaches which rank.
//
// Threads: open() and connect() are for the thread that connects, interrupt() for any meanwhile;
// the rest comes afterwards and is thread-safe, but for linger(). Locks: mutex_ for changes of
// transports_, which the control thread reads.
class Routes {
 public:
  // place: outlives the object, and is complete when open() is called.
  explicit Routes(const rendezvous::Place& place)
      : place_(place), by_rank_(static_cast<std::size_t>(place.size), nullptr) {}

  // Makes the transports that the options allow, with room for their descriptors. Throws Error.
  void open(const TransportFactory& factory, const Options& options);
  // Chooses the nearest transport to each peer, and starts those that are used. Both ends make the
  // same choice, because distance is symmetric. Throws Error(rendezvous) if a peer is out of reach.
  void connect(std::span<const Record> records, std::uint64_t job);
  // Ends a connect() that waits for other ranks.
  void interrupt(const std::string& cause);
  // From now on links may open, of so many connections each: counts their descriptors.
  void keep_room_for_links(int connections);

  const TransportList& transports() const noexcept { return transports_; }
  std::vector<transports::Transport*> all() const;
  // By rank; null for this one.
  const std::vector<transports::Transport*>& by_rank() const noexcept { return by_rank_; }
  // By rank: why nearer transports do not reach it.
  const std::vector<std::string>& passed_over() const noexcept { return passed_over_; }
  const std::string& name() const noexcept { return name_; }  // "shm+tcp"
  const std::string& address() const noexcept { return address_; }
  std::string describe_peer(int peer) const;

  // Memory of the first transport that shares some between ranks; null if none does.
  std::unique_ptr<transports::Allocation> allocate(std::size_t bytes) const;
  // Makes memory known to every transport.
  Registration register_memory(void* data, std::size_t bytes) const;
  // Waits until the hosts of the receivers have what was sent. warns: writes a warning that names
  // ranks which do not have it by then.
  void linger(bool warns, base::TimePoint until) const noexcept;

 private:
  void choose(int peer, const Record& record);
  void drop_idle();

  const rendezvous::Place& place_;
  TransportList transports_;
  std::mutex mutex_;
  std::vector<transports::Transport*> by_rank_;
  std::vector<std::string> passed_over_;
  LaterDescriptors later_descriptors_;  // those of links, once connected
  std::string name_ = "self", address_;
};

}  // namespace rondo::lib
