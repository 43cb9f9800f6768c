// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include <rondo/options.h>

#include "transports/stream.h"

namespace rondo::lib {

// The bare stream of the devices that a communicator with these options uses between hosts, for
// programs that compare Rondo with its devices. Throws Error(system) where there is no such device,
// and Error(invalid_argument) for a filter that is malformed or matches nothing.
std::unique_ptr<transports::Stream> open_device_stream(const Options& options);

}  // namespace rondo::lib
