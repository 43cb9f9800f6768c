// SPDX-License-Identifier: Apache-2.0
//
// New communicators out of one that works: its ranks tell each other their colors, and the ranks of
// a color meet through it.
#pragma once

#include <memory>

#include "lib/state.h"

namespace rondo::lib {

// Collective over the parent's ranks; null for a negative color. `number` of this split among the
// parent's, from 1.
std::unique_ptr<CommunicatorState> split(CommunicatorState& parent, int color, int key,
                                         std::uint64_t number);

}  // namespace rondo::lib
