// SPDX-License-Identifier: Apache-2.0
//
// The plain TCP sockets under the ceiling measurement. Nothing here waits past its deadline. A
// failure is a std::system_error that names the call, or a std::runtime_error that says what
// happened.
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

// Listens on the first free port from first to last, or on any when first is 0. Sets the endpoint's
// port.
base::FileDescriptor listen_at(Endpoint& endpoint, std::uint16_t first, std::uint16_t last);
base::FileDescriptor connect_to(const Endpoint& endpoint, Deadline deadline);
base::FileDescriptor accept_one(const base::FileDescriptor& listener, Deadline deadline);
// Returns the first connection whose first bytes are the token. Closes the connections of
// strangers, which send other bytes, close, or are silent for `patience`.
base::FileDescriptor accept_with_token(const base::FileDescriptor& listener,
                                       std::span<const std::byte> token,
                                       std::chrono::milliseconds patience, Deadline deadline);
// Asks for this size of both buffers of a connected socket; the kernel then no longer adapts them.
void bound_buffers(const base::FileDescriptor& socket, std::size_t bytes);

void send_all(const base::FileDescriptor& socket, std::span<const std::byte> bytes,
              Deadline deadline);
void receive_all(const base::FileDescriptor& socket, std::span<std::byte> bytes, Deadline deadline);

// Sends `to_send` bytes to one socket while it receives `to_receive` bytes from another; either may
// be 0. `chunk` is the memory for both: what is sent does not matter.
void stream(const base::FileDescriptor& to, std::size_t to_send, const base::FileDescriptor& from,
            std::size_t to_receive, std::span<std::byte> chunk, Deadline deadline);

}  // namespace rondo::tools
