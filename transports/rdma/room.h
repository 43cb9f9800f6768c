// SPDX-License-Identifier: Apache-2.0
//
// How much a transport takes: slots, locked memory, entries of completion queues.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transports/rdma/devices.h"
#include "transports/transport.h"

namespace rondo::rdma {

// How many slots of this size a link of this lane has.
std::uint32_t slot_count(transports::Lane lane, std::uint32_t slot_bytes) noexcept;
// The largest slots that fit into the memory that this process may lock, for links to all of
// `ranks` ranks. Every device counts what is registered with it. Throws Error(system) with the
// remedy when not even the smallest fit.
std::uint32_t fitting_slot_bytes(int ranks, std::size_t devices);
// Enough for every request of every path that a device may have.
std::size_t completion_entries(const Devices& devices, std::size_t device, int ranks,
                               unsigned connections) noexcept;

}  // namespace rondo::rdma
