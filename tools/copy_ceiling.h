// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>

#include <cstddef>
#include <span>
#include <string>

#include "tools/ceiling.h"

namespace rondo::tools {

// The ceiling of traffic through shared memory (traffic.h). All ranks, which are on one host, call
// memcpy at once, each on its own memory, for as many bytes as the row moves: small ones stay in
// caches in both. Every byte copied counts twice, as loaded and as stored.
class CopyCeiling final : public Ceiling {
 public:
  // Two buffers of the benchmark of one size, the same size on all ranks; measure() overwrites
  // them.
  CopyCeiling(Communicator& communicator, std::span<std::byte> from, std::span<std::byte> to)
      : communicator_(communicator), from_(from), to_(to) {}

  // The best of some rounds of ten milliseconds, or of one copy where that takes longer.
  double measure(const Row& row) override;
  const std::string& trouble() const noexcept override { return trouble_; }

 private:
  double seconds_of_a_round(std::size_t bytes, std::size_t copies);

  Communicator& communicator_;
  std::span<std::byte> from_, to_;
  std::string trouble_;
};

}  // namespace rondo::tools
