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

// Where a run stands. Plain bytes, so that it can be broadcast.
struct Progress {
  std::uint64_t step = 0;              // steps done
  std::uint64_t epoch = 0, taken = 0;  // of the sampler: rondo::ShardedSampler::Position
  // Loss and right answers of this epoch so far: sum, weight, sum, weight.
  std::array<double, 4> epoch_sums{};
  std::array<std::uint64_t, 8> norm_batches{};  // rondo::SyncBatchNorm::batches() by layer
};

// What must be the same in a run that goes on, as options and values: {"--seed", "1"}.
using Identity = std::vector<std::pair<std::string, std::string>>;

// Of the file that is written first.
inline constexpr const char* checkpoint_suffix = ".new";

struct CheckpointError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Writes to a file beside `path`, which then takes its name: whenever the program ends, `path` is a
// whole checkpoint, the old or the new. Throws CheckpointError.
void write_checkpoint(const std::string& path, const Identity& identity, const Progress& progress,
                      std::span<const rondo::Parameter> tensors);

// Fills the tensors, which must be those that were written. Throws CheckpointError for a file that
// is something else, of another version, cut, damaged, or of a run with other options or tensors;
// nothing has been changed then.
Progress read_checkpoint(const std::string& path, const Identity& identity,
                         std::span<const rondo::Parameter> tensors);

}  // namespace train
