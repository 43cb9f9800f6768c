// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/parameters.h>

#include <array>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace train {

// The progress of a run. It is trivially copyable, so that it can be broadcast.
struct Progress {
  std::uint64_t step = 0;              // steps done
  std::uint64_t epoch = 0, taken = 0;  // of the sampler: rondo::ShardedSampler::Position
  // The sums of this epoch so far: loss and its weight, right answers and their weight.
  std::array<double, 4> epoch_sums{};
  std::array<std::uint64_t, 8> norm_batches{};  // rondo::SyncBatchNorm::batches() by layer
};

// Options that must be the same when a run is resumed, with their values: {"--seed", "1"}.
using Identity = std::vector<std::pair<std::string, std::string>>;

// Suffix of the temporary file that is written first.
inline constexpr const char* checkpoint_suffix = ".new";

struct CheckpointError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Writes a temporary file beside `path` and renames it. So `path` is always a whole checkpoint, the
// old or the new one, whenever the program ends. Throws CheckpointError.
void write_checkpoint(const std::string& path, const Identity& identity, const Progress& progress,
                      std::span<const rondo::Parameter> tensors);

// Fills the tensors, which must be those that were written. Throws CheckpointError for a file that
// is no checkpoint, has another version, is cut or damaged, or comes from a run with other options
// or tensors. Then no tensor has been changed.
Progress read_checkpoint(const std::string& path, const Identity& identity,
                         std::span<const rondo::Parameter> tensors);

}  // namespace train
