// SPDX-License-Identifier: Apache-2.0
#include "base/shortage.h"

#include <sys/resource.h>

#include <cerrno>

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

}  // namespace rondo::base
