// SPDX-License-Identifier: Apache-2.0
//
// Makes connect() fail on all ranks or on none, with one cause: a rank that cannot go on tells the
// others. Thread-safe.
#pragma once

#include <exception>
#include <string>

#include "lib/control/control.h"
#include "lib/rendezvous/rendezvous.h"

namespace rondo::lib {

// For a failure before the ranks have joined: reports it at the rendezvous. Throws Error with the
// cause that all ranks get.
[[noreturn]] void fail_before_joining(const rendezvous::Place& place, const Options& options,
                                      const std::exception& error);

// For a failure after that: reports it over the control plane. Throws Error with the communicator's
// first failure, which may be another rank's.
[[noreturn]] void fail_together(control::Control& control, int rank, const std::exception& error);

}  // namespace rondo::lib
