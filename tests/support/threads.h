// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace rondo::testing {

// Describes the threads of this process, a line each: number, name, state (R: it runs), seconds of
// processor time, and the system call that it is in where the kernel tells. For the last words of a
// test that hangs: they tell a loop, a wait, and a machine that stood still apart.
std::string describe_threads();

}  // namespace rondo::testing
