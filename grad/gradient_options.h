// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include <rondo/gradients.h>

namespace rondo {

// The parameters themselves when all ranks have the same, of types and devices that can be averaged. Collective.
std::vector<Parameter> checked(Communicator& communicator, std::vector<Parameter> parameters);

// The options with caps rounded, when all ranks have the same. Collective.
GradientOptions checked(Communicator& communicator, GradientOptions options);

}  // namespace rondo
