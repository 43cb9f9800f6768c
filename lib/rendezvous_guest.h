// SPDX-License-Identifier: Apache-2.0
//
// The side of the ranks other than 0.
#pragma once

#include "lib/rendezvous_host.h"

namespace rondo {

// Finds rank 0, tries until the deadline, proves the secret, hands in the record and waits for those of all.
Company attend(const Place& place, const Options& options, const Blob& record);

}  // namespace rondo
