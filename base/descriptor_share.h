// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace rondo::base {

// How many connections a listener may hold before they prove the secret: a quarter of the
// descriptors that this process may have (RLIMIT_NOFILE as it is now), at least one. So strangers
// cannot use up the descriptors that the job needs. Without a limit the result is the largest
// number. Thread-safe.
std::size_t most_unproved_descriptors() noexcept;

}  // namespace rondo::base
