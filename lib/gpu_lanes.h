// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <rondo/communicator.h>
#include <rondo/types.h>

#include "collectives/direct/area.h"
#include "collectives/gpu/message_staging.h"
#include "collectives/gpu/mover.h"
#include "collectives/gpu/segment_staging.h"
#include "device/gpus.h"
#include "lib/arguments.h"
#include "transports/gpu_windows.h"
#include "transports/some_windows.h"

namespace rondo::lib {

// The most that the segments of one call on a GPU may take. staging_bytes: Options::staging_bytes.
std::size_t gpu_staging_bytes(std::size_t staging_bytes, int ranks) noexcept;
// A chunk of buffers that ranks reach directly on GPUs: so large that launches cost little.
std::size_t gpu_chunk_bytes(std::size_t staging_bytes) noexcept;

// The staging memory of a communicator for GPUs, of each lane by itself. It is made at the first
// call of the lane on the GPU.
//
// Threads: gpus() is thread-safe. The rest is for the thread that starts operations of the lane,
// settle() for the one that destroys the communicator. Failures: Error(unsupported) without a
// driver, invalid_argument, system.
class GpuLanes {
 public:
  struct Needs {
    int ranks = 1;
    std::size_t bytes = 0;        // gpu_staging_bytes(), for collectives
    std::size_t chunk_bytes = 0;  // gpu_chunk_bytes(), for direct ones
    const std::shared_ptr<operation::Waker>& waker;
    // Makes memory known to the transports.
    std::function<Registration(void* data, std::size_t bytes)> keep;
  };

  const std::shared_ptr<device::Gpus>& gpus() const noexcept { return gpus_; }
  // Checks that the buffers of the call lie in memory of its GPU.
  void check_buffers(const Arguments& arguments) const;
  // Does the same for one buffer. name: that of the parameter, "in".
  void check_buffer(const CheckedCall& call, const Buffer& buffer, std::string_view name) const;
  gpu::SegmentStaging& staging(int device, Priority priority, const Needs& needs);
  // These ranks, which have host windows for each other, may use memory of each other's GPUs. The
  // host windows outlive settle(). Comes before all calls.
  void share(int rank, transports::Windows& host, std::span<const int> ranks);
  bool has_windows() const noexcept { return windows_ != nullptr; }
  // Requires has_windows(). Also maps what other ranks have allocated since.
  gpu::Mover& mover(int device, Priority priority, const Needs& needs,
                    direct::DirectUse use = direct::DirectUse::all);
  // Zeroed memory of the GPU, which the ranks that share windows reach directly if they can.
  std::unique_ptr<transports::Allocation> allocate(int device, std::size_t bytes);
  // Makes memory of the GPU that the program has allocated known to the ranks that share windows.
  // Null where no ranks do.
  std::unique_ptr<transports::Registration> register_memory(int device,
                                                            std::span<std::byte> memory);
  // Does the same for messages.
  gpu::MessageStaging& transfers(int device, const Needs& needs);
  // After the engine's end. If copies or the program's streams do not end in settle_time, staging
  // memory is left to the end of the process, because to free it would wait for the GPU.
  void settle(int rank) noexcept;

 private:
  template <class Kind>
  struct OnGpu {
    std::unique_ptr<Kind> kind;
    Registration registration;
  };
  template <class Kind>
  using ByGpu = std::map<int, OnGpu<Kind>>;

  template <class Kind, class Make>
  Kind& find(ByGpu<Kind>& all, int device, const Needs& needs, Make make);
  template <class Function>
  void for_each_port(Function function);
  template <class Function>
  void for_each_mover(Function function);

  const std::shared_ptr<device::Gpus> gpus_ = std::make_shared<device::Gpus>();
  std::optional<transports::SomeWindows> sharing_;
  std::unique_ptr<transports::GpuWindows> windows_;  // over sharing_
  std::array<ByGpu<gpu::SegmentStaging>, lane_count> lanes_;
  // By use and priority.
  std::array<std::array<ByGpu<gpu::Mover>, lane_count>, direct::direct_uses> movers_;
  ByGpu<gpu::MessageStaging> messages_;
};

// Calls the function. What it throws of a GPU gets the name of the call in front.
template <class Function>
auto name_call(const CheckedCall& call, Function function) {
  try {
    return function();
  } catch (const Error& error) {
    const std::string_view text = error.what();
    if (text.starts_with(call.name)) throw;
    throw Error(error.code(), std::string(call.name) + " on rank " + std::to_string(call.rank) +
                                  ": " + std::string(text));
  }
}

}  // namespace rondo::lib
