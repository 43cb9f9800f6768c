// SPDX-License-Identifier: Apache-2.0
//
// The kernels for GPUs, compiled for the processor from the same source
// (collectives/kernels/device). A fake of CUDA's driver finds them by the names of their entry
// points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace rondo::testing {

// Where the processor finds `bytes` bytes at an address of the arguments.
using TranslateAddress = std::function<std::byte*(std::uint64_t address, std::size_t bytes)>;

struct HostKernel {
  std::string_view name;
  std::size_t argument_bytes;
  // Runs the whole grid. arguments: what the launch was given, which stays as it is. Asks translate
  // for each pointer in it, and throws what that throws.
  void (*run)(const void* arguments, unsigned blocks, unsigned threads,
              const TranslateAddress& translate);
};

// Null if there is none of that name. Thread-safe.
const HostKernel* find_host_kernel(std::string_view name) noexcept;
const std::vector<HostKernel>& host_kernels() noexcept;

// For tests whose addresses are those of the processor.
std::byte* same_address(std::uint64_t address, std::size_t bytes) noexcept;

}  // namespace rondo::testing
