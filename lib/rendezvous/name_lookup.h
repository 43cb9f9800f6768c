// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "lib/rendezvous/socket.h"

namespace rondo::rendezvous {

// The addresses of a name or a number. Empty, with `why` set, when there is none or the system has
// not found any by `until`. Thread-safe.
//
// The system's resolver (getaddrinfo) cannot be interrupted, so a name is looked up on a thread of
// its own. When its caller has given up at its deadline, a later lookup joins that thread, or the
// end of the process, which does not wait for the resolver.
std::vector<Endpoint> resolve(const std::string& host, std::uint16_t port, base::TimePoint until,
                              std::string& why);

}  // namespace rondo::rendezvous
