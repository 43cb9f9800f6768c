// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "lib/control/control.h"
#include "lib/rendezvous/stream.h"

namespace rondo::control {

// Both throw Error(system) when the thread cannot be started; the other ranks hear of it before.
//
// Rank 0, the hub. streams: of ranks 1, 2, ...; shared: what they may still have to send.
std::unique_ptr<Control> make_hub(std::vector<rendezvous::Stream> streams, transports::Blob shared);
// The others. stream: to rank 0.
std::unique_ptr<Control> make_spoke(rendezvous::Stream stream, int rank);

}  // namespace rondo::control
