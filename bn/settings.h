// SPDX-License-Identifier: Apache-2.0
//
// Options of a layer that must be the same on all ranks: type, layout, epsilon, momentum, affine
// and track_running. The others (threads, deadline) may differ.
#pragma once

#include <cstdint>
#include <string>

#include <rondo/batch_norm.h>

namespace rondo::bn {

std::uint64_t hash_of_settings(const BatchNormOptions& options) noexcept;

// Collective, on every rank. Returns this rank's values of the options that differ between ranks: "
// with epsilon 0.001". Empty if `layer` differs, because then ranks are at different layers. Throws
// Error.
std::string differing_settings(Communicator& communicator, std::uint64_t layer,
                               const BatchNormOptions& options);

}  // namespace rondo::bn
