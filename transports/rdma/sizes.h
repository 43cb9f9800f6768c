// SPDX-License-Identifier: Apache-2.0
//
// How much memory and how many queue entries a transport takes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transports/rdma/devices.h"
#include "transports/transport.h"

namespace rondo::rdma {

// How many slots of this size a link of this lane has.
std::uint32_t slot_count(transports::Lane lane, std::uint32_t slot_bytes) noexcept;
// Returns the largest size of a slot with which links to all of `ranks` ranks fit into the memory
// that this process may lock. Every device counts what is registered with it. Throws Error(system)
// with the remedy when not even the smallest fit.
std::uint32_t fitting_slot_bytes(int ranks, std::size_t devices);
// Returns how many entries the completion queue of this device needs for all requests of all its
// paths.
std::size_t completion_entries(const Devices& devices, std::size_t device, int ranks,
                               unsigned connections) noexcept;

}  // namespace rondo::rdma
