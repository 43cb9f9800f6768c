// SPDX-License-Identifier: Apache-2.0
#include "lib/message_memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace rondo::lib {

void MessageMemory::add(const Buffer& b, std::string_view name) {
  call_.check_buffer(b, name);
  if (b.count == 0) return;
  const int device = std::max(b.device, -1);
  if (device_.value_or(device) != device)
    call_.refuse(
        fmt::format("{}.device is {}, but that of a buffer before it is {}: all buffers of "
                    "a call must be on one GPU, or all in host memory",
                    name, b.device, *device_));
  device_ = device;
  if (device >= 0) gpus_.check_buffer(call_, b, name);
}

}  // namespace rondo::lib
