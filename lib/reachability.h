// SPDX-License-Identifier: Apache-2.0
//
// What the transports say of this machine before anything is connected, for `rondo info`.
// Implemented where the transports are named: lib/transports.cc.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <rondo/info.h>

namespace rondo::lib {

std::vector<TransportInfo> describe_transports();
// Throws Error(invalid_argument) for a filter that names an interface that does not exist.
std::vector<InterfaceInfo> describe_interfaces(const std::vector<std::string>& filters);

// Shared memory that each of so many ranks of one host makes.
std::size_t shared_segment_bytes(int ranks_on_host) noexcept;

}  // namespace rondo::lib
