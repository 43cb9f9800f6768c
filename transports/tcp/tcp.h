// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "transports/connect/keepalive.h"
#include "transports/connect/options.h"
#include "transports/transport.h"

namespace rondo::tcp {

struct Options : connect::Options {
  // How many connections between two interfaces, 1 to connect::most_connections. The smaller of
  // both ends' values counts.
  unsigned connections = 1;
};

// The TCP transport; it listens at once. Throws Error(invalid_argument) for an interface that does
// not exist (and lists those that do) and Error(system) when no port of the range is free.
std::unique_ptr<transports::Transport> make_tcp(const Options& options);

// Returns the counts of this transport's connections so far; zeros for another transport.
// Thread-safe.
connect::Segments segments_of(transports::Transport& transport);

}  // namespace rondo::tcp
