// SPDX-License-Identifier: Apache-2.0
//
// The side of the ranks other than 0.
#pragma once

#include "lib/rendezvous/host.h"

namespace rondo::rendezvous {

// Finds rank 0, tries until the deadline, proves the secret, hands in the record and waits for
// those of all.
Company attend(const Place& place, const Options& options, const transports::Blob& record);

// For a rank that cannot join: tells rank 0, by place.deadline, and returns the cause that rank 0
// sends to all. Throws Error when rank 0 cannot be found.
engine::Failure attend_to_fail(const Place& place, const Options& options,
                               const engine::Failure& failure);

}  // namespace rondo::rendezvous
