// SPDX-License-Identifier: Apache-2.0
//
// connect() fails on all ranks or on none, and with one cause: whatever stops one of them is told to the others.
#pragma once

#include <exception>
#include <string>

#include "lib/control.h"
#include "lib/rendezvous.h"

namespace rondo {

// "rank 2 could not connect: WHY".
std::string could_not_connect(int rank, const std::string& why);

// Before the ranks have met: tells the others at the rendezvous. Throws Error.
[[noreturn]] void fail_before_joining(const Place& place, const Options& options,
                                      const std::exception& error);

// Afterwards: over the control plane. Throws Error with the communicator's first failure, which may be another rank's.
[[noreturn]] void fail_together(Control& control, int rank, const std::exception& error);

}  // namespace rondo
