// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

namespace rondo::tools {

// Raises this process's limit of open files to the hard limit, because many labelled ranks need
// many pipes; the destructor restores it. Give programs that this process starts before() again:
// some size their tables by the limit. A failed change is ignored.
class DescriptorLimit {
 public:
  DescriptorLimit() {
    if (::getrlimit(RLIMIT_NOFILE, &before_) != 0) before_ = {RLIM_INFINITY, RLIM_INFINITY};
    const rlimit raised{before_.rlim_max, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &raised);
  }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;
  ~DescriptorLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

  const rlimit& before() const noexcept { return before_; }

 private:
  rlimit before_{};
};

}  // namespace rondo::tools
