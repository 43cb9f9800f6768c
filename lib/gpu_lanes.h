// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include <rondo/communicator.h>
#include <rondo/types.h>

#include "collectives/engine/gpu_staging.h"
#include "device/gpus.h"
#include "lib/arguments.h"

namespace rondo::lib {

// The most that the segments of one call on a GPU may take. staging_bytes: Options::staging_bytes.
std::size_t gpu_staging_bytes(std::size_t staging_bytes, int ranks) noexcept;

// The staging memory of a communicator for GPUs, of each lane by itself. It is made at the first
// call of the lane on the GPU.
//
// Threads: gpus() is thread-safe. The rest is for the thread that starts operations of the lane,
// settle() for the one that destroys the communicator. Failures: Error(unsupported) without a
// driver, invalid_argument, system.
class GpuLanes {
 public:
  struct Needs {
    std::size_t bytes = 0;  // gpu_staging_bytes()
    const std::shared_ptr<engine::Waker>& waker;
    // Makes memory known to the transports.
    std::function<Registration(void* data, std::size_t bytes)> keep;
  };

  const std::shared_ptr<device::Gpus>& gpus() const noexcept { return gpus_; }
  // Checks that the buffers of the call lie in memory of its GPU.
  void check_buffers(const Arguments& arguments) const;
  engine::GpuStaging& staging(int device, Priority priority, const Needs& needs);
  // After the engine's end. If copies or the program's streams do not end in settle_time, staging
  // memory is left to the end of the process, because to free it would wait for the GPU.
  void settle(int rank) noexcept;

 private:
  struct OnGpu {
    std::unique_ptr<engine::GpuStaging> staging;
    Registration registration;
  };

  const std::shared_ptr<device::Gpus> gpus_ = std::make_shared<device::Gpus>();
  std::array<std::map<int, OnGpu>, lane_count> lanes_;  // by GPU
};

// Calls the function. What it throws of a GPU gets the name of the call in front.
template <class Function>
auto name_call(const Arguments& a, Function function) {
  try {
    return function();
  } catch (const Error& error) {
    const std::string_view text = error.what();
    if (text.starts_with(a.traits().name)) throw;
    throw Error(error.code(), std::string(a.traits().name) + " on rank " + std::to_string(a.rank) +
                                  ": " + std::string(text));
  }
}

}  // namespace rondo::lib
