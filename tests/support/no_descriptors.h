// SPDX-License-Identifier: Apache-2.0
//
// A process that has no descriptor number left, or few.
#ifndef RONDO_TESTS_SUPPORT_NO_DESCRIPTORS_H
#define RONDO_TESTS_SUPPORT_NO_DESCRIPTORS_H

#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"

namespace rondo::testing {

// Occupies all descriptor numbers of this process except `spare`, while the object lives.
class NoDescriptors {
 public:
  explicit NoDescriptors(std::size_t spare = 0) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit low = before_;
    low.rlim_cur = 300;
    ::setrlimit(RLIMIT_NOFILE, &low);
    for (base::FileDescriptor one(::dup(0)); one; one = base::FileDescriptor(::dup(0)))
      all_.push_back(std::move(one));
    all_.resize(all_.size() - spare);
  }
  ~NoDescriptors() {
    all_.clear();
    ::setrlimit(RLIMIT_NOFILE, &before_);
  }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
  std::vector<base::FileDescriptor> all_;
};

}  // namespace rondo::testing

#endif  // RONDO_TESTS_SUPPORT_NO_DESCRIPTORS_H
