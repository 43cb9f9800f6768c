// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "lib/wire/socket.h"

namespace rondo::wire {

// Returns the addresses of a name or a number. Empty, with `why` set, if there is none or the
// system has not found any by `until`. Thread-safe.
//
// The system's resolver (getaddrinfo) cannot be interrupted, so each name is looked up on a thread
// of its own. If the caller gives up at its deadline, a later lookup joins the thread once it has
// ended. The end of the process cancels it and does not wait for the resolver's answer.
std::vector<Endpoint> resolve(const std::string& host, std::uint16_t port, base::TimePoint until,
                              std::string& why);

}  // namespace rondo::wire
