// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "base/file_descriptor.h"

namespace rondo::host {

// Where the other ranks of this host find this one.
struct Listener {
  std::string name;  // in the abstract name space, with a random part
  base::FileDescriptor socket;
  std::string obstacle;  // why there is none, or why this process has no memory to share; empty
                         // when all is well
};
// bytes: of the memory that this rank will share when as many ranks as `size` are on this host.
Listener open_listener(int size, std::size_t bytes);

}  // namespace rondo::host
