// SPDX-License-Identifier: Apache-2.0
#include "collectives/gpu/slots.h"

#include <fmt/format.h>

#include <exception>
#include <string>
#include <utility>

#include <rondo/error.h>

#include "base/log.h"
#include "base/text.h"
#include "device/keep.h"
#include "device/objects.h"

namespace rondo::gpu {

namespace {

// Memory from allocate() is used where it lies after fewer calls, as a rule.
constexpr unsigned calls_before = 8;

}  // namespace

void GpuSlots::make_wanted() {
  if (tried_ || wanted_.load(std::memory_order_relaxed) < calls_before) return;
  tried_ = true;
  try {
    if (const std::string why = device::why_not_shared(gpu_); !why.empty())
      throw Error(Errc::unsupported, why);
    allocation_ = windows_.allocate(gpu_.ordinal(), whole_bytes());
    memory_.store(allocation_->memory().data(), std::memory_order_release);
  } catch (const std::exception& error) {
    base::log_line(base::LogLevel::warning,
                   fmt::format("GPU {} gives no {} for slots, so buffers that are not from "
                               "allocate() go through the host: {}",
                               gpu_.ordinal(), base::describe_bytes(whole_bytes()), error.what()));
  }
}

transports::WindowPlace GpuSlots::place() const noexcept {
  std::byte* const memory = this->memory();
  return memory == nullptr ? transports::WindowPlace() : windows_.find(memory, whole_bytes());
}

void GpuSlots::abandon() noexcept {
  device::keep_until_exit(std::move(allocation_));
}

}  // namespace rondo::gpu
