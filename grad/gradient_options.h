// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <rondo/gradients.h>

namespace rondo::grad {

// The parameters themselves when all ranks have the same, of types and devices that can be
// averaged, and none has options that cannot be. Collective; throws Error on every rank.
std::vector<Parameter> checked(Communicator& communicator, std::vector<Parameter> parameters,
                               const GradientOptions& options);

// The options with caps rounded, when all ranks have the same. Collective; throws Error on every
// rank.
GradientOptions checked(Communicator& communicator, GradientOptions options);

// A number that these buckets have on all ranks, and no others that rank 0's process has made.
// Collective.
std::uint64_t agreed_number(Communicator& communicator, const GradientOptions& options);

}  // namespace rondo::grad
