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
#include <span>

#include "device/driver.h"
#include "transports/cuda_ipc/table.h"

namespace rondo::cuda_ipc {

struct ProcessMemory {
  int rank = 0;  // that has registered it
  device::Address address = 0;
  std::size_t bytes = 0;
  device::Ordinal ordinal = 0;    // of its GPU
  std::span<Table* const> ranks;  // of its communicator, as it sees them; valid until it is removed
};
// An importer looks for memory of the owner's rank in the communicator in which it has this place
// and identity.
struct Importer {
  int owner = 0;
  std::size_t place = 0;
  std::uint64_t identity = 0;
};

std::uint64_t random_word();  // not 0; throws Error(system)
// Gives the memory a name, which is random and not 0. Throws Error(system) and std::bad_alloc.
std::uint64_t add_process_memory(const ProcessMemory& memory);
void remove_process_memory(std::uint64_t name) noexcept;
// No value: the owner is no rank of this process, or has not registered such memory in the
// communicator in which the importer has this place.
std::optional<ProcessMemory> find_process_memory(std::uint64_t name, const Importer& importer);

}  // namespace rondo::cuda_ipc
