// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/file_descriptor.h"

namespace rondo::shm {

// Where the other ranks of this host find this one.
struct ShmListener {
  std::string name;  // in the abstract name space, with a random part
  base::FileDescriptor socket;
  std::string obstacle;  // why there is none, or why this process has no memory to share; empty
                         // when all is well
};
ShmListener open_shm_listener(int size);

}  // namespace rondo::shm
