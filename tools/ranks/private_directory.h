// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "base/file_descriptor.h"

namespace rondo::tools {

// A directory rondo-run-XXXXXX of mode 0700 under $TMPDIR or /tmp. The destructor removes it with
// its contents. A killed process leaves its directory behind, and the next process that makes one
// removes it. A locked file marks a directory that is in use.
class PrivateDirectory {
 public:
  // Throws std::system_error when it cannot make a directory; std::runtime_error when other
  // processes remove each one at once.
  PrivateDirectory();
  PrivateDirectory(const PrivateDirectory&) = delete;
  PrivateDirectory& operator=(const PrivateDirectory&) = delete;
  ~PrivateDirectory();
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  bool make(const std::string& pattern);

  std::filesystem::path path_;
  base::FileDescriptor lock_;
};

}  // namespace rondo::tools
