// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

namespace rondo::connect {

// Finds the descriptors that Boost.Asio itself opens for an io_context: an epoll, and the event and
// the timer in it. Asio tells them to nobody, but a forked child has to close them. socket: one
// that the context watches and nothing else does. Reads /proc; without it the result is empty, and
// children keep these descriptors. Thread-safe.
std::vector<int> find_reactor(int socket);

}  // namespace rondo::connect
