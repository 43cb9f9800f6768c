// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <rondo/gradients.h>

namespace rondo::grad {

// Returns the parameters if all ranks have the same, their types and devices can be averaged, and
// no rank has invalid options. Collective; otherwise throws Error on every rank.
std::vector<Parameter> checked(Communicator& communicator, std::vector<Parameter> parameters,
                               const GradientOptions& options);

// Returns the options, with caps rounded, if all ranks have the same. Collective; otherwise throws
// Error on every rank.
GradientOptions checked(Communicator& communicator, GradientOptions options);

// Returns a number that is the same on all ranks and that no other buckets made by rank 0's process
// have. Collective.
std::uint64_t agreed_number(Communicator& communicator, const GradientOptions& options);

}  // namespace rondo::grad
