// SPDX-License-Identifier: Apache-2.0
//
// The side of the ranks other than 0.
#pragma once

#include "lib/rendezvous_host.h"

namespace rondo {

// Finds rank 0, tries until the deadline, proves the secret, hands in the record and waits for those of all.
Company attend(const Place& place, const Options& options, const Blob& record);

// This rank cannot join: tells rank 0, by place.deadline, and returns what rank 0 tells everybody. Throws Error when rank 0 is not to be found.
Failure attend_to_fail(const Place& place, const Options& options, const Failure& failure);

}  // namespace rondo
