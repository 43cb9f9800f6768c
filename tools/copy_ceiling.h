// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>

#include <cstddef>
#include <string>

#include "tools/ceiling.h"

namespace rondo::tools {

// For the traffic of shared memory (traffic.h): all ranks, which are on one host, copy with memcpy at once, from memory of their own to memory
// of their own, more of it than caches hold. Every byte copied counts twice, as one that is loaded and one that is stored.
class CopyCeiling final : public Ceiling {
 public:
  // Takes memory, at most 512 MiB on all ranks together up to 64 ranks. Called by all ranks together.
  explicit CopyCeiling(Communicator& communicator);

  // By all ranks together, the median of some rounds.
  double measure() override;
  const std::string& trouble() const noexcept override { return trouble_; }

 private:
  double seconds_of_a_round();

  Communicator& communicator_;
  std::size_t bytes_;  // that each rank copies in a round
  Memory from_, to_;
  bool usable_ = false;
  std::string trouble_;
};

}  // namespace rondo::tools
