// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>

#include <exception>

#include "examples/train/options.h"

namespace train {

// Another rank has said, or will say, why the run ends.
struct ToldElsewhere : std::exception {
  const char* what() const noexcept override { return "another rank says why"; }
};

// A whole run as the options say. Collective. Throws rondo::Error, CheckpointError, ToldElsewhere,
// std::runtime_error.
template <class T>
void run(rondo::Communicator& communicator, const RunOptions& options);

extern template void run<float>(rondo::Communicator&, const RunOptions&);
extern template void run<double>(rondo::Communicator&, const RunOptions&);

}  // namespace train
