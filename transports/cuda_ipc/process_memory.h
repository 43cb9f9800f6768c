// SPDX-License-Identifier: Apache-2.0
//
// Memory of GPUs that ranks of this process have registered. CUDA opens no handle in the process
// that made it, so ranks that are threads of one process find such memory here, by a name that the
// owner shows in its table. What a name stands for is looked up here and not in the table: a rank
// of another process can name only memory that a rank of this process has shown to it.
//
// This is state of the whole process, because an address means something in one process only.
// Thread-safe. It locks a mutex of its own, under which nothing blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "device/driver.h"

namespace rondo::cuda_ipc {

struct ProcessMemory {
  int rank = 0;  // that has registered it
  device::Address address = 0;
  std::size_t bytes = 0;
  device::Ordinal ordinal = 0;  // of its GPU
};

// Gives the memory a name, which is random and not 0. Throws Error(system) and std::bad_alloc.
std::uint64_t add_process_memory(const ProcessMemory& memory);
void remove_process_memory(std::uint64_t name) noexcept;
// No value: no rank of this process has registered such memory.
std::optional<ProcessMemory> find_process_memory(std::uint64_t name);

}  // namespace rondo::cuda_ipc
