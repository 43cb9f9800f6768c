// SPDX-License-Identifier: Apache-2.0
//
// Draws steps of gradient buckets from a seed: models, options, weights, unused gradients, orders
// of readiness, ways of giving gradients. A plain sum checks the results.
#pragma once

#include "grad/trainer.h"
#include "support/draw.h"

namespace rondo::testing {

// All ranks draw the same.
struct Drawn {
  explicit Drawn(std::uint64_t its_seed);
  // For a few ranks whose GPUs have faults: large tensors, and values whose sums are all exact.
  static Drawn exact(std::uint64_t seed, int size);

  double weight(std::size_t step, int rank) const;
  // In some steps some parameters are unused on some ranks, and some of them on all.
  bool unused(std::size_t step, int rank, std::size_t parameter) const;
  // Returns the factor of each rank's gradient in the average.
  std::vector<double> shares(std::size_t step) const;
  bool any_hint(std::size_t step) const;

  std::uint64_t seed;
  Draw draw;
  Model model;
  int size = 1;
  GradientOptions options;
  std::size_t unused_in = 0, steps = 5;
  bool norms = false, copies = false, on_stream = false, is_exact = false;
};

void run_drawn_step(Trainer& trainer, const Drawn& drawn, std::size_t step, int rank);
// Throw std::runtime_error unless the gradients follow from what the ranks have given, and, where
// sums are exact, the norm follows from them.
void check_drawn_step(Trainer& trainer, const Drawn& drawn, std::size_t step, int rank);
void check_drawn_norm(Trainer& trainer, const Drawn& drawn, std::size_t step);

}  // namespace rondo::testing
