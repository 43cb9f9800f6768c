// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>

#include <cstddef>
#include <span>
#include <string>

#include "tools/ceilings/ceiling.h"

namespace rondo::tools {

// The ceiling of memory traffic (traffic.h), for ranks that are all on one host. All ranks call
// memcpy at once, each on its own memory, and together move as many bytes as the row. So data that
// fits into caches stays there in both. Every byte copied counts twice: loaded and stored.
class CopyCeiling final : public Ceiling {
 public:
  // `from` and `to` are the buffers of the benchmark: both have the same size, on all ranks.
  // measure() overwrites them.
  CopyCeiling(Communicator& communicator, std::span<std::byte> from, std::span<std::byte> to)
      : communicator_(communicator), from_(from), to_(to) {}

  // Returns the best of five rounds. A round takes about ten milliseconds, or one copy where that
  // takes longer.
  double measure(const Row& row) override;
  const std::string& trouble() const noexcept override { return trouble_; }

 private:
  double seconds_of_a_round(std::size_t bytes, std::size_t copies);

  Communicator& communicator_;
  std::span<std::byte> from_, to_;
  std::string trouble_;
};

}  // namespace rondo::tools
