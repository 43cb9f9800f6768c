// SPDX-License-Identifier: Apache-2.0
//
// Gradients that travel as f16 are multiplied by a power of two, so that small ones keep their
// digits and no sum overflows. Each parameter has its own power, whatever the buckets.
//
// The power follows from the largest element that each rank sent in the step before. The header
// carries the sum of these sizes over ranks, and no sum of gradients can be larger. The power
// brings it below 2^7. So gradients may grow 2^9 times in a step before they overflow, and elements
// 2^21 times smaller than the largest keep all digits: f16 loses digits below 2^-14.
//
// A parameter that has not travelled yet has no known size. In such a step buckets wait for
// finish(), which compares sizes first. If a gradient has grown too much, its sum is infinite on
// all ranks alike, and its bucket travels again with new powers.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "grad/setup.h"

namespace rondo::grad {

// The powers of two of one GradientBuckets. It starts no collectives: the launcher sends the sizes
// of Passes. `sizes` below has their sum over ranks for each parameter.
//
// Threads: the holder of the launcher's role, or the step thread while nobody has the role.
// Locks: none. Failure: none.
class WirePowers {
 public:
  explicit WirePowers(const Setup& setup);

  // How many sizes travel: one for each parameter, or none without f16 on the wire.
  std::size_t count() const noexcept { return exponents_.size(); }

  void begin_step() { again_.reset(); }
  // Reads the sums. Returns false when a parameter has no power yet, so that finish() must measure.
  bool take(std::span<const double> sizes, bool any_rank_gives);
  // The same as take(), after all ranks have measured: afterwards every parameter has a power.
  void take_measured(std::span<const double> sizes);

  // Chooses new powers for a bucket whose sum has overflowed. Returns false when the old ones are
  // small enough: then a gradient itself is infinite or NaN, and so is the sum.
  bool choose_again(std::size_t bucket, std::span<const double> sizes);

  // What a gradient is multiplied by as it travels in this bucket; 1 without f16.
  float power_of(std::size_t bucket, std::size_t parameter) const noexcept;

 private:
  bool has_power(std::size_t parameter) const noexcept;

  const Setup& setup_;
  // By parameter; empty without f16.
  std::vector<std::optional<int>> exponents_;  // none: the size is not known yet
  std::vector<int> exponents_again_;           // the same, for again_
  std::optional<std::size_t> again_;  // the bucket that has travelled again and is being taken in
};

}  // namespace rondo::grad
