// SPDX-License-Identifier: Apache-2.0
//
// The plain TCP sockets under the ceiling measurement. Nothing here waits past its deadline; every
// failure is a std::system_error or std::runtime_error that names the call.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/file_descriptor.h"

namespace rondo::tools {

using Deadline = std::chrono::steady_clock::time_point;

struct Endpoint {
  std::string host;  // numeric
  std::uint16_t port = 0;
};
// "10.0.0.7:41022" or "[fd00::7]:41022".
Endpoint parse_endpoint(const std::string& text);

// Listens on a port from first to last, any when first is 0; the endpoint's port is set to it.
base::FileDescriptor listen_at(Endpoint& endpoint, std::uint16_t first, std::uint16_t last);
base::FileDescriptor connect_to(const Endpoint& endpoint, Deadline deadline);
base::FileDescriptor accept_one(const base::FileDescriptor& listener, Deadline deadline);
// The first connection whose first bytes are the token. Strangers, which send others, close, or are
// silent for `patience`, are sent away.
base::FileDescriptor accept_with_token(const base::FileDescriptor& listener,
                                       std::span<const std::byte> token,
                                       std::chrono::milliseconds patience, Deadline deadline);
// Both buffers of a connected socket have this size from now on, and the kernel no longer adapts
// them.
void bound_buffers(const base::FileDescriptor& socket, std::size_t bytes);

void send_all(const base::FileDescriptor& socket, std::span<const std::byte> bytes,
              Deadline deadline);
void receive_all(const base::FileDescriptor& socket, std::span<std::byte> bytes, Deadline deadline);

// Sends so many bytes to one socket while it receives so many from another; either may be 0.
void stream(const base::FileDescriptor& to, std::size_t to_send, const base::FileDescriptor& from,
            std::size_t to_receive, std::span<std::byte> chunk, Deadline deadline);

}  // namespace rondo::tools
