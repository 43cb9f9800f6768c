// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "transports/host/exchange.h"

namespace rondo::host {

struct Neighbour {
  int rank = 0;
  std::string name;  // of the socket at which it listens
  std::uint32_t process = 0;
};

// Ends exchange_all() from another thread: the control plane is the first to know that a rank is
// lost. Thread-safe.
class Interruption {
 public:
  Interruption();  // throws Error(system)
  // The first text counts.
  void set(std::string_view why) noexcept;
  int descriptor() const noexcept { return event_.get(); }
  std::string why() const;

 private:
  base::FileDescriptor event_;  // readable once it is set
  mutable std::mutex mutex_;
  std::string why_;
};

// Exchanges descriptors with every neighbour; the end with the higher rank connects to the other.
// Throws Error when a neighbour ends meanwhile, is another rank, or has not come by `until`, and
// when it is interrupted; neighbours that have proved themselves get the cause. Returns the peers
// in order of ranks.
std::vector<Peer> exchange_all(const Offer& own, int listener,
                               const std::vector<Neighbour>& neighbours, base::TimePoint until,
                               const Interruption& interruption);

}  // namespace rondo::host
