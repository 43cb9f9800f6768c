// SPDX-License-Identifier: Apache-2.0
#include "collectives/operation/device_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"

namespace rondo::operation {

void DeviceMemories::add(DeviceMemory& memory) {
  if (std::ranges::find(all_, &memory) == all_.end()) all_.push_back(&memory);
}

bool DeviceMemories::prepare_sleep() {
  return std::ranges::all_of(all_, [](DeviceMemory* memory) { return memory->prepare_sleep(); });
}

// No copy may use the buffers of an operation after its end.
void DeviceMemories::await_copies(int rank) {
  const base::TimePoint until = base::Clock::now() + DeviceMemory::settle_time;
  bool ended = true;
  for (DeviceMemory* const memory : all_) ended = memory->await_copies(until) && ended;
  if (!ended)
    base::log_line(base::LogLevel::warning,
                   fmt::format("rank {}: a GPU still copies from or to buffers of failed "
                               "operations: do not use them before the GPU is idle",
                               rank));
}

std::size_t DeviceMemories::bytes() const noexcept {
  std::size_t bytes = 0;
  for (const DeviceMemory* const memory : all_) bytes += memory->bytes();
  return bytes;
}

}  // namespace rondo::operation
