// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>

#include "base/file_descriptor.h"
#include "base/handshake.h"
#include "transports/connect/options.h"

namespace rondo::connect {

// A non-blocking TCP socket, closed on exec. Throws Error(system).
base::FileDescriptor make_socket(const boost::asio::ip::address& address);

// The socket will connect from this address, with a port that the kernel chooses then. Throws
// Error(system).
void bind_to(int socket, const boost::asio::ip::address& address);

// Listens at the first free port from `first` to `last` (0: any), beginning the search `offset`
// ports behind the first. Throws Error(system) when there is none, or the address cannot be bound.
base::FileDescriptor listen_at(const boost::asio::ip::address& address, std::uint16_t first,
                               std::uint16_t last, unsigned offset, int backlog);

boost::asio::ip::tcp::endpoint local_endpoint(int socket);
boost::asio::ip::tcp::endpoint remote_endpoint(int socket);

// Whether both ends are on one host, by the addresses that the kernel gives.
bool is_within_host(int socket);
// Terms for the handshake of a connection.
base::Terms terms_for(int socket, const Options& options);

// What every connection gets: no delay, and keepalive and TCP_USER_TIMEOUT that give a vanished
// host up after `timeout`.
void set_keepalive(int socket, std::chrono::milliseconds timeout);

// One handshake message into the empty buffer of a new connection: all of it, or the connection is
// of no use.
bool send_whole(int socket, std::span<const std::byte> message);

}  // namespace rondo::connect
