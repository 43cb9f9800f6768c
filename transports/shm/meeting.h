// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "transports/shm/encounter.h"

namespace rondo {

struct ShmNeighbour {
  int rank = 0;
  std::string name;  // of the socket at which it listens
  std::uint32_t process = 0;
};

// Meets every neighbour, in the order given. The one with the higher rank connects to the other. Throws Error when one of
// them ends meanwhile, is somebody else, or has not come by then; those met already are told why.
std::vector<ShmMet> meet(const ShmOwn& own, int listener, const std::vector<ShmNeighbour>& neighbours,
                         TimePoint until);

}  // namespace rondo
