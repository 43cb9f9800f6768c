// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <rondo/gradients.h>

namespace rondo::grad {

// Returns the parameters if all ranks have the same, their types and devices can be averaged, and
// no rank has invalid options. Collective; otherwise throws Error on every rank.
std::vector<Parameter> checked(Communicator& communicator, std::vector<Parameter> parameters,
                               const GradientOptions& options);

// Where the gradients of such parameters are, as Buffer::device.
int device_of(std::span<const Parameter> parameters) noexcept;

// Returns the options, with caps rounded, if all ranks have the same, and gradients in host memory
// on all ranks or on GPUs on all. Collective; otherwise throws Error on every rank.
GradientOptions checked(Communicator& communicator, GradientOptions options, int device);

// Returns a number that is the same on all ranks and that no other buckets made by rank 0's process
// have. Collective.
std::uint64_t agreed_number(Communicator& communicator, const GradientOptions& options);

}  // namespace rondo::grad
