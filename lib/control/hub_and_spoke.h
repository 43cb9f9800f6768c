// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "lib/control/control.h"
#include "lib/wire/stream.h"

namespace rondo::control {

// Both throw Error(system) if the thread cannot be started, after telling the other ranks.
//
// Makes rank 0's end, the hub. streams: those of ranks 1, 2, ...; shared: the bytes that these may
// still have to send.
std::unique_ptr<Control> make_hub(std::vector<wire::Stream> streams, transports::Blob shared);
// Makes the end of another rank. stream: that to rank 0.
std::unique_ptr<Control> make_spoke(wire::Stream stream, int rank);

}  // namespace rondo::control
