// SPDX-License-Identifier: Apache-2.0
//
// The states of a queue pair: which changes a device takes, and with which attributes.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "transports/rdma/fake_wire.h"

namespace rondo::testing {

inline constexpr std::uint32_t packet_numbers = 1u << 24;
inline constexpr std::uint8_t most_reads = 16;

// mask: the attributes that are given.
bool is_allowed_change(ibv_qp_state from, ibv_qp_state to, int mask);
// Whether the values that this change needs make sense.
bool are_valid(const ibv_qp_attr& wanted, const PortState& port);

}  // namespace rondo::testing
