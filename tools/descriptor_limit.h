// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/resource.h>

namespace rondo::tools {

// As many file descriptors for this process as the system allows it, which many labelled ranks
// need; as before, afterwards. Programs started from here are to have before() again: some size
// their tables by the limit.
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
