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

// Functions on TCP sockets. All are thread-safe.

// Makes a non-blocking TCP socket that is closed on exec. Throws Error(system).
base::FileDescriptor make_socket(const boost::asio::ip::address& address);

// Makes the socket connect from this address. The kernel chooses the port when it connects. Throws
// Error(system).
void bind_to(int socket, const boost::asio::ip::address& address);

// Listens at a free port from `first` to `last`; first 0: at any port. The search begins `offset`
// ports after the first and wraps around. Throws Error(system) when no port is free, or when the
// address cannot be bound.
base::FileDescriptor listen_at(const boost::asio::ip::address& address, std::uint16_t first,
                               std::uint16_t last, unsigned offset, int backlog);

// An empty endpoint when the kernel knows none.
boost::asio::ip::tcp::endpoint local_endpoint(int socket);
boost::asio::ip::tcp::endpoint remote_endpoint(int socket);

// Whether both ends are on one host, judged by the addresses that the kernel gives.
bool is_within_host(int socket);
// The terms for the handshake of a connection, by where its other end is.
base::Terms terms_for(int socket, const Options& options);

// Sets what every connection needs: TCP_NODELAY, and keepalive and TCP_USER_TIMEOUT, which end the
// connection `timeout` after the peer's host vanished (1 ms to 1 hour). Errors are ignored.
void set_keepalive(int socket, std::chrono::milliseconds timeout);

// Sends one handshake message into the empty send buffer of a new connection. False: it was not
// sent whole, and the connection is of no use. An empty message is sent already.
bool send_whole(int socket, std::span<const std::byte> message);

}  // namespace rondo::connect
