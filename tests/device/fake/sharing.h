// SPDX-License-Identifier: Apache-2.0
//
// Memory that processes share: allocations that are mapped, and handles. Thread-safe, quiet. The
// functions are those of the API without its checks of context and faults.
#pragma once

#include "memory.h"

namespace fake {

inline constexpr std::size_t granularity = std::size_t{2} << 20;

Status create_allocation(rondo::device::AllocationHandle* handle, std::size_t bytes,
                         const rondo::device::AllocationProperties& properties);
Status release_allocation(rondo::device::AllocationHandle handle);
Status export_allocation(int* descriptor, rondo::device::AllocationHandle handle);
Status import_allocation(rondo::device::AllocationHandle* handle, int descriptor);
Status reserve(Address* base, std::size_t bytes, std::size_t alignment);
Status free_reservation(Address base, std::size_t bytes);
Status map_allocation(Address at, std::size_t bytes, std::size_t offset,
                      rondo::device::AllocationHandle handle);
Status unmap_range(Address at, std::size_t bytes);
Status give_access(Address at, std::size_t bytes);

Status make_handle(rondo::device::IpcMemoryHandle* handle, Address address);
Status open_handle(Address* address, const rondo::device::IpcMemoryHandle& handle,
                   ContextHandle context);
Status close_handle(Address address);

}  // namespace fake
