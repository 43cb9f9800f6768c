// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <thread>

namespace rondo::base {

// Every thread of the library is started here: with all signals blocked, so that handlers of the
// program run on the program's own threads, and with a name (at most 15 characters) that debuggers
// and top show. Throws Error(system), with the limit of threads, when the system cannot start one.
std::thread start_thread(const char* name, std::function<void()> body);

}  // namespace rondo::base
