// SPDX-License-Identifier: Apache-2.0
#include "base/shortage.h"

#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <limits>

namespace rondo::base {

bool is_shortage(int error) noexcept {
  return error == EMFILE || error == ENFILE || error == ETOOMANYREFS || error == ENOBUFS ||
         error == ENOMEM;
}

std::string remedy_of_shortage(int error) {
  rlimit limit{};
  if (error == EMFILE && ::getrlimit(RLIMIT_NOFILE, &limit) == 0)
    return "; this process may have " + std::to_string(limit.rlim_cur) +
           " open files: raise the limit (ulimit -n)";
  if (error == ETOOMANYREFS)
    return "; this user has too many descriptors in flight between processes: raise the limit of "
           "open files "
           "(ulimit -n)";
  if (error == ENFILE) return "; raise the system's limit of open files (fs.file-max)";
  if (error == ENOBUFS || error == ENOMEM) return "; the system is short of memory";
  return {};
}

bool connection_waits(int listener) noexcept {
  pollfd ready{listener, POLLIN, 0};
  return ::poll(&ready, 1, 0) > 0;
}

std::size_t most_unproved_descriptors() noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::numeric_limits<std::size_t>::max();
  return std::max<std::size_t>(1, static_cast<std::size_t>(limit.rlim_cur) / 4);
}

}  // namespace rondo::base
