// SPDX-License-Identifier: Apache-2.0
//
// Makes new communicators from one that works: its ranks tell each other their colors, and the
// ranks of a color join through it.
#pragma once

#include <memory>

#include "lib/state.h"

namespace rondo::lib {

// Collective over the parent's ranks. Returns null for a negative color. `number` counts the
// parent's splits, from 1. Throws Error: see Communicator::split().
std::unique_ptr<CommunicatorState> split(CommunicatorState& parent, int color, int key,
                                         std::uint64_t number);

}  // namespace rondo::lib
