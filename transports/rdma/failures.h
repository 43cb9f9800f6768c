// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <infiniband/verbs.h>

#include <string>

#include "transports/rdma/path.h"

namespace rondo::rdma {

// Returns what a completion with an error means: cause, both ends, and what to try.
std::string describe_failure(const ibv_wc& completion, const Path& path);

// Returns what an event of a device or port means; empty when it is no failure.
std::string describe_event(ibv_event_type type);

}  // namespace rondo::rdma
