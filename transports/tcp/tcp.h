// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "transports/connect/options.h"
#include "transports/transport.h"

namespace rondo::tcp {

struct Options : connect::Options {
  // Between two interfaces, 1 to connect::most_connections; the smaller of both ends' values
  // counts.
  unsigned connections = 1;
};

// Listens at once. Throws Error(invalid_argument) for an interface that does not exist (and lists
// those that do) and Error(system) when no port of the range is free.
std::unique_ptr<transports::Transport> make_tcp(const Options& options);

}  // namespace rondo::tcp
