// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace rondo::base {

// The most connections without a proof that a listener may hold: a quarter of the descriptors that
// this process may have (RLIMIT_NOFILE as it is now), at least one. So strangers cannot take the
// descriptors that the job needs.
std::size_t most_unproved_descriptors() noexcept;

}  // namespace rondo::base
