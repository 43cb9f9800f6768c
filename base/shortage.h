// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace rondo::base {

// Errors of the system that may pass: too few descriptors, too many of them in flight between
// processes, too little memory.
bool is_shortage(int error) noexcept;
// The remedy for one, with the limit that holds: "; this process may have 64 open files: raise the
// limit (ulimit -n)". Empty for other errors.
std::string remedy_of_shortage(int error);

}  // namespace rondo::base
