// SPDX-License-Identifier: Apache-2.0
#include "lib/gpu_buffers.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "base/text.h"
#include "device/objects.h"

namespace rondo::lib {

namespace {

// CUpointer_attribute
enum PointerAttribute : int {
  memory_type = 2,
  device_ordinal = 9,
  range_start = 11,
  range_bytes = 12
};
// CUmemorytype
constexpr unsigned device_memory = 2;

struct Pointer {
  unsigned type = 0;  // 0: CUDA does not know it
  int ordinal = -1;
  device::Address start = 0;
  std::size_t bytes = 0;
};

Pointer look_up(const device::Gpu& gpu, const void* data) {
  Pointer pointer;
  int attributes[] = {memory_type, device_ordinal, range_start, range_bytes};
  void* values[] = {&pointer.type, &pointer.ordinal, &pointer.start, &pointer.bytes};
  gpu.check(gpu.driver().pointer_get_attributes(4, attributes, values,
                                                reinterpret_cast<device::Address>(data)),
            "cuPointerGetAttributes");
  return pointer;
}

class GpuAllocation final : public transports::Allocation {
 public:
  GpuAllocation(std::shared_ptr<device::Gpus> gpus, int ordinal, std::size_t bytes)
      : gpus_(std::move(gpus)), memory_(gpus_->gpu(ordinal), bytes) {
    device::set_to_zero(gpus_->gpu(ordinal), memory_);
  }
  // The CPU must not touch it: the span only says where it lies.
  std::span<std::byte> memory() const noexcept override {
    return {reinterpret_cast<std::byte*>(memory_.address()), memory_.bytes()};
  }

 private:
  const std::shared_ptr<device::Gpus> gpus_;
  const device::DeviceMemory memory_;
};

}  // namespace

void check_on_gpu(const CheckedCall& call, const device::Gpu& gpu, const Buffer& b,
                  std::string_view name) {
  if (b.count == 0) return;
  const device::Current current(gpu);
  const Pointer pointer = look_up(gpu, b.data);
  if (pointer.type != device_memory)
    call.refuse(fmt::format("{}.device is {}, but {}.data is in host memory: pass device -1", name,
                            b.device, name));
  if (pointer.ordinal != b.device)
    call.refuse(fmt::format("{}.device is {}, but {}.data is in memory of GPU {}", name, b.device,
                            name, pointer.ordinal));
  const std::uint64_t bytes = b.count * size_of(b.type);
  const std::uint64_t offset = reinterpret_cast<device::Address>(b.data) - pointer.start;
  if (pointer.bytes != 0 && bytes > pointer.bytes - offset)
    call.refuse(fmt::format("{} has {} {} elements, {}, but its memory on GPU {} ends after {}",
                            name, b.count, name_of(b.type), base::describe_bytes(bytes), b.device,
                            base::describe_bytes(pointer.bytes - offset)));
}

std::unique_ptr<transports::Allocation> allocate_on_gpu(std::shared_ptr<device::Gpus> gpus,
                                                        int ordinal, std::size_t bytes) {
  return std::make_unique<GpuAllocation>(std::move(gpus), ordinal, bytes);
}

}  // namespace rondo::lib
