// SPDX-License-Identifier: Apache-2.0
#include "device/pointer.h"

#include <fmt/format.h>

#include "base/text.h"

namespace rondo::device {

Pointer look_up(const Gpu& gpu, const void* data) {
  // CUpointer_attribute and CUmemorytype.
  constexpr int memory_type = 2, device_ordinal = 9, range_start = 11, range_bytes = 12;
  constexpr unsigned device_memory = 2;
  unsigned type = 0;
  int ordinal = -1;
  Address start = 0;
  std::size_t bytes = 0;
  int attributes[] = {memory_type, device_ordinal, range_start, range_bytes};
  void* values[] = {&type, &ordinal, &start, &bytes};
  const auto address = reinterpret_cast<Address>(data);
  gpu.check(gpu.driver().pointer_get_attributes(4, attributes, values, address),
            "cuPointerGetAttributes");
  return {type == device_memory, ordinal, bytes == 0 ? 0 : bytes - (address - start)};
}

AddressRange range_of(const Gpu& gpu, Address address) {
  AddressRange range;
  gpu.check(gpu.driver().memory_get_address_range(&range.begin, &range.bytes, address),
            "cuMemGetAddressRange");
  return range;
}

std::string problem_of_memory(const Gpu& gpu, const void* data, std::size_t bytes,
                              std::string_view who) {
  const Pointer pointer = look_up(gpu, data);
  if (!pointer.on_gpu)
    return fmt::format("is in host memory, but {} on GPU {}", who, gpu.ordinal());
  if (pointer.ordinal != gpu.ordinal())
    return fmt::format("is in memory of GPU {}, but {} on GPU {}", pointer.ordinal, who,
                       gpu.ordinal());
  if (pointer.bytes_left != 0 && bytes > pointer.bytes_left)
    return fmt::format("has {}, but its memory on GPU {} ends after {}",
                       base::describe_bytes(bytes), pointer.ordinal,
                       base::describe_bytes(pointer.bytes_left));
  return {};
}

}  // namespace rondo::device
