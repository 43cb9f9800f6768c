// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/info.h>

#include <optional>

namespace rondo::tools {

// The place that a launcher (rondo run, mpirun, srun, torchrun) gave this process; none when it was
// started by hand. Throws UsageError when a launcher has started it but its variables do not tell
// rank and size: going on alone would measure nothing, once for each process.
std::optional<PlaceInfo> find_launch(const Options& options);

}  // namespace rondo::tools
