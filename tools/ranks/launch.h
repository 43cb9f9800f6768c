// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/info.h>

#include <optional>

namespace rondo::tools {

// Finds the place that a launcher (rondo run, mpirun, srun, torchrun) gave this process. Returns
// nothing when no launcher started it. Throws UsageError when a launcher started it but its
// variables do not give rank and size: otherwise each process would start a benchmark of its own.
std::optional<PlaceInfo> find_launch(const Options& options);

}  // namespace rondo::tools
