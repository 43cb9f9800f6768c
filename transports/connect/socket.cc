// SPDX-License-Identifier: Apache-2.0
#include "transports/connect/socket.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include <rondo/error.h>

#include "base/text.h"

namespace rondo::connect {
namespace {

namespace ip = boost::asio::ip;
using Endpoint = ip::tcp::endpoint;

void set(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

using NameCall = int (*)(int, sockaddr*, socklen_t*);
Endpoint endpoint_of(int socket, NameCall call) {
  Endpoint endpoint;
  socklen_t length = static_cast<socklen_t>(endpoint.capacity());
  if (call(socket, endpoint.data(), &length) != 0) return {};
  endpoint.resize(length);
  return endpoint;
}

}  // namespace

base::FileDescriptor make_socket(const ip::address& address) {
  base::FileDescriptor socket(::socket(address.is_v4() ? AF_INET : AF_INET6,
                                       SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (!socket)
    throw Error(Errc::system,
                fmt::format("cannot make a TCP socket: {}", base::describe_errno(errno)));
  return socket;
}

void bind_to(int socket, const ip::address& address) {
  set(socket, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
  const Endpoint endpoint(address, 0);
  if (::bind(socket, endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0)
    throw Error(Errc::system, fmt::format("cannot bind to {}: {}", address.to_string(),
                                          base::describe_errno(errno)));
}

base::FileDescriptor listen_at(const ip::address& address, std::uint16_t first, std::uint16_t last,
                               unsigned offset, int backlog) {
  const unsigned count = first == 0 ? 1 : std::max(first, last) - first + 1u;
  int error = 0;
  for (unsigned i = 0; i < count; ++i) {
    base::FileDescriptor socket = make_socket(address);
    set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (address.is_v6()) set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
    const Endpoint endpoint(
        address, static_cast<std::uint16_t>(first == 0 ? 0 : first + (offset + i) % count));
    if (::bind(socket.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) == 0 &&
        ::listen(socket.get(), backlog) == 0)
      return socket;
    error = errno;
    if (error != EADDRINUSE && error != EACCES) break;
  }
  if (first == 0)
    throw Error(Errc::system, fmt::format("cannot listen at {}: {}", address.to_string(),
                                          base::describe_errno(error)));
  throw Error(
      Errc::system,
      fmt::format(
          "cannot listen at {} on any port from {} to {}: {}; the range must hold a free port for "
          "every rank of this host, two for each rank that uses both tcp and rdma",
          address.to_string(), first, std::max(first, last), base::describe_errno(error)));
}

Endpoint local_endpoint(int socket) {
  return endpoint_of(socket, &::getsockname);
}
Endpoint remote_endpoint(int socket) {
  return endpoint_of(socket, &::getpeername);
}

bool is_within_host(int socket) {
  const auto remote = remote_endpoint(socket).address();
  return remote.is_loopback() || remote == local_endpoint(socket).address();
}

base::Terms terms_for(int socket, const Options& options) {
  return {options.this_host_only ? base::SecretOf::user : base::SecretOf::job,
          is_within_host(socket) ? options.within_host : options.between_hosts};
}

void set_keepalive(int socket, std::chrono::milliseconds timeout) {
  constexpr int probes = 3;
  const auto bounded = std::clamp<std::int64_t>(timeout.count(), 1, 3'600'000);
  const int seconds =
      static_cast<int>(std::clamp<std::int64_t>(bounded / 1000 / (probes + 1), 1, 3600));
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, probes);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(bounded));
}

bool send_whole(int socket, std::span<const std::byte> message) {
  // Without a message there is no call: it would take a pending error that the next reader needs.
  return message.empty() || ::send(socket, message.data(), message.size(), MSG_NOSIGNAL) ==
                                static_cast<ssize_t>(message.size());
}

}  // namespace rondo::connect
