// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include <rondo/types.h>

#include "lib/arguments.h"
#include "lib/gpu_lanes.h"

namespace rondo::lib {

// The buffers of one call of messages: all are on one GPU, or all in host memory. call and gpus
// outlive the object.
class MessageMemory {
 public:
  MessageMemory(const CheckedCall& call, const GpuLanes& gpus) noexcept
      : call_(call), gpus_(gpus) {}

  // Checks the buffer; refuses the call otherwise. name: that of the parameter, "in".
  void add(const Buffer& buffer, std::string_view name);
  const CheckedCall& call() const noexcept { return call_; }
  // Negative: the buffers are in host memory, or empty.
  int device() const noexcept { return device_.value_or(-1); }

 private:
  const CheckedCall& call_;
  const GpuLanes& gpus_;
  std::optional<int> device_;
};

}  // namespace rondo::lib
