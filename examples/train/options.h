// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/types.h>

#include <CLI/CLI.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "examples/train/checkpoint.h"
#include "examples/train/trainer.h"

namespace train {

// The options of the command line.
struct RunOptions {
  std::size_t images = 6000, test_images = 1000;
  std::size_t epochs = 10;
  std::size_t batch = 64;  // of all ranks together
  std::uint64_t seed = 1;
  double learning_rate = 0.4;
  double momentum = 0.9;
  double warm_up = 0.5;  // epochs
  double clip = 0;
  NormMode norms = NormMode::sync;
  rondo::DType type = rondo::DType::f32;
  std::optional<rondo::DType> wire;
  std::size_t bucket_bytes = 4096;
  bool reproducible = false;
  std::string csv, checkpoint, resume;
  std::size_t checkpoint_every = 0;  // steps; 0: each epoch
  std::size_t stop_after = 0;        // steps; 0: at the end

  std::size_t steps_of_epoch() const noexcept { return (images + batch - 1) / batch; }
  std::size_t steps() const noexcept { return epochs * steps_of_epoch(); }
  TrainerOptions trainer() const;
  Schedule schedule() const;
  Identity identity() const;
};

void add_options(CLI::App& app, RunOptions& options);

// Checks what CLI11 cannot: options together, and with the number of ranks. Throws
// CLI::ValidationError.
void check_options(const RunOptions& options, int ranks);

}  // namespace train
