// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>

#include <exception>

#include "examples/train/options.h"

namespace train {

// Thrown when another rank prints why the run ends.
struct ToldElsewhere : std::exception {
  const char* what() const noexcept override { return "another rank says why"; }
};

// Does a whole run with these options. Collective. Throws rondo::Error, CheckpointError,
// ToldElsewhere, std::runtime_error.
template <class T>
void run(rondo::Communicator& communicator, const RunOptions& options);

extern template void run<float>(rondo::Communicator&, const RunOptions&);
extern template void run<double>(rondo::Communicator&, const RunOptions&);

}  // namespace train
