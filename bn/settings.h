// SPDX-License-Identifier: Apache-2.0
//
// The options of a layer that all ranks must have alike: type, layout, epsilon, momentum, affine and track_running. The others (threads,
// deadline) may differ.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <rondo/batch_norm.h>

namespace rondo::bn {

// FNV-1a of the text, and a hash of two numbers in which every bit counts.
std::uint64_t hash_of(std::string_view text) noexcept;
std::uint64_t mixed(std::uint64_t hash, std::uint64_t number) noexcept;

std::uint64_t hash_of_settings(const BatchNormOptions& options) noexcept;

// Collective, on every rank: " with epsilon 0.001", this rank's values of the options that are not the same on all ranks. Empty where
// `layer` is not the same on all ranks: then they are at different layers. Throws Error.
std::string differing_settings(Communicator& communicator, std::uint64_t layer,
                               const BatchNormOptions& options);

}  // namespace rondo::bn
