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
  // Why there is no socket, or why this process can share no memory; empty when it can.
  std::string obstacle;
};
// bytes: how much memory this rank shares if all `size` ranks are on this host.
Listener open_listener(int size, std::size_t bytes);

}  // namespace rondo::host
