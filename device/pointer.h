// SPDX-License-Identifier: Apache-2.0
//
// Asks what CUDA knows of an address. Thread-safe. The GPU's context is current. Throws
// Error(system).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "device/gpu.h"

namespace rondo::device {

struct Pointer {
  bool on_gpu = false;  // in memory of a GPU; otherwise in host memory, or CUDA does not know it
  Ordinal ordinal = -1;
  std::size_t bytes_left = 0;  // from the address to the end of its memory; 0: not known
};
Pointer look_up(const Gpu& gpu, const void* data);

// The allocation that holds the address.
struct AddressRange {
  Address begin = 0;
  std::size_t bytes = 0;
};
AddressRange range_of(const Gpu& gpu, Address address);

// Returns what is wrong with memory that must be on this GPU and have so many bytes: "is in host
// memory, but the layer is on GPU 0". Empty if nothing is. who: "the layer is".
std::string problem_of_memory(const Gpu& gpu, const void* data, std::size_t bytes,
                              std::string_view who);

}  // namespace rondo::device
