// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "lib/rendezvous_socket.h"

namespace rondo {

// The addresses of a name or a number; empty, with `why` set, when there is none or the system has not found any by `until`. Thread-safe.
//
// The system's resolver (getaddrinfo) cannot be interrupted, so a name is looked up on a thread of its own. One whose caller has
// gone at its deadline is joined by a later lookup, or at the end of the process, which does not wait for the resolver.
std::vector<Endpoint> resolve(const std::string& host, std::uint16_t port, TimePoint until, std::string& why);

}  // namespace rondo
