// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "transports/shm/encounter.h"

namespace rondo::shm {

struct ShmNeighbour {
  int rank = 0;
  std::string name;  // of the socket at which it listens
  std::uint32_t process = 0;
};

// Ends a meeting from another thread: the control plane is the first to know that a rank is lost.
// Thread-safe.
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

// Meets every neighbour; the end with the higher rank connects to the other. Throws Error when a
// neighbour ends meanwhile, is another rank, or has not come by then, and when it is interrupted;
// neighbours that were met get the cause. Returns them in order of ranks.
std::vector<ShmMet> meet(const ShmOwn& own, int listener,
                         const std::vector<ShmNeighbour>& neighbours, base::TimePoint until,
                         const Interruption& interruption);

}  // namespace rondo::shm
