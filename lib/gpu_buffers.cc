// SPDX-License-Identifier: Apache-2.0
#include "lib/gpu_buffers.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "base/text.h"
#include "device/objects.h"
#include "device/pointer.h"

namespace rondo::lib {

namespace {

class GpuAllocation final : public transports::Allocation {
 public:
  // The CPU must not touch the memory: the span only says where it lies.
  GpuAllocation(std::shared_ptr<device::Gpus> gpus, device::DeviceMemory memory)
      : Allocation({reinterpret_cast<std::byte*>(memory.address()), memory.bytes()}),
        gpus_(std::move(gpus)),
        memory_(std::move(memory)) {}

 private:
  const std::shared_ptr<device::Gpus> gpus_;
  const device::DeviceMemory memory_;
};

}  // namespace

void check_on_gpu(const CheckedCall& call, const device::Gpu& gpu, const Buffer& b,
                  std::string_view name) {
  if (b.count == 0) return;
  const device::Current current(gpu);
  const device::Pointer pointer = device::look_up(gpu, b.data);
  if (!pointer.on_gpu)
    call.refuse(fmt::format("{}.device is {}, but {}.data is in host memory: pass device -1", name,
                            b.device, name));
  if (pointer.ordinal != b.device)
    call.refuse(fmt::format("{}.device is {}, but {}.data is in memory of GPU {}", name, b.device,
                            name, pointer.ordinal));
  const std::uint64_t bytes = b.count * size_of(b.type);
  if (pointer.bytes_left != 0 && bytes > pointer.bytes_left)
    call.refuse(fmt::format("{} has {} {} elements, {}, but its memory on GPU {} ends after {}",
                            name, b.count, name_of(b.type), base::describe_bytes(bytes), b.device,
                            base::describe_bytes(pointer.bytes_left)));
}

std::unique_ptr<transports::Allocation> allocate_on_gpu(std::shared_ptr<device::Gpus> gpus,
                                                        int ordinal, std::size_t bytes) {
  const device::Gpu& gpu = gpus->gpu(ordinal);
  device::DeviceMemory memory(gpu, bytes);
  device::set_to_zero(gpu, memory);
  return std::make_unique<GpuAllocation>(std::move(gpus), std::move(memory));
}

}  // namespace rondo::lib
