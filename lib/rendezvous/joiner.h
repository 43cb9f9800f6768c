// SPDX-License-Identifier: Apache-2.0
//
// The side of the ranks other than 0.
#pragma once

#include "lib/rendezvous/rank_zero.h"

namespace rondo::rendezvous {

// Finds rank 0, tries until the deadline, proves the secret, hands in the record and waits for
// those of all.
JoinResult join_rank_zero(const Place& place, const Options& options,
                          const transports::Blob& record);

// For a rank that cannot join: tells rank 0, by place.deadline, and returns the cause that rank 0
// sends to all. Throws Error when rank 0 cannot be found.
engine::Failure report_to_rank_zero(const Place& place, const Options& options,
                                    const engine::Failure& failure);

}  // namespace rondo::rendezvous
