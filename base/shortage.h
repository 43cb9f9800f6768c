// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace rondo::base {

// True for an errno that may pass: no descriptor is free, too many are in flight between processes,
// or the system is short of memory.
bool is_shortage(int error) noexcept;
// The remedy for such an errno, with the limit where it is known: "; this process may have 64 open
// files: raise the limit (ulimit -n)". Empty for other errors.
std::string remedy_of_shortage(int error);

// Whether a connection waits in this listening socket. With no descriptor left accept4() fails
// without a look: that alone is no shortage.
bool connection_waits(int listener) noexcept;

// How many connections a listener may hold before they prove the secret: a quarter of the
// descriptors that this process may have (RLIMIT_NOFILE as it is now), at least one. So strangers
// cannot use up the descriptors that the job needs. Without a limit the result is the largest
// number. Thread-safe.
std::size_t most_unproved_descriptors() noexcept;

}  // namespace rondo::base
