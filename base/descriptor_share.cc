// SPDX-License-Identifier: Apache-2.0
#include "base/descriptor_share.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>

namespace rondo::base {

std::size_t most_unproved_descriptors() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<std::size_t>::max();
  return std::max<std::size_t>(1, static_cast<std::size_t>(limit.rlim_cur) / 4);
}

}  // namespace rondo::base
