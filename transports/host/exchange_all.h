// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/event.h"
#include "transports/host/exchange.h"

namespace rondo::host {

struct Neighbour {
  int rank = 0;
  std::string name;  // the socket at which it listens
  std::uint32_t process = 0;
};

// Ends exchange_all() from another thread, because the control plane is the first to know that a
// rank is lost. Thread-safe. It locks a mutex of its own.
class Interruption {
 public:
  Interruption();  // throws Error(system)
  // Only the first text counts.
  void set(std::string_view why) noexcept;
  // Nothing waits any more: closes the descriptor. A text that is set later does nothing.
  void end() noexcept;
  int descriptor() const noexcept { return event_.descriptor(); }
  std::string why() const;

 private:
  base::Event event_;  // readable once it is set
  mutable std::mutex mutex_;
  std::string why_;
};

// Exchanges descriptors with every neighbour; the end with the higher rank connects to the other.
// Returns the peers in order of ranks. Throws Error when a neighbour ends meanwhile, refuses, or
// has not come by `until`, and when it is interrupted. Neighbours that have proved themselves then
// get the cause.
std::vector<Peer> exchange_all(const Offer& own, int listener,
                               const std::vector<Neighbour>& neighbours, base::TimePoint until,
                               const Interruption& interruption);

}  // namespace rondo::host
