// SPDX-License-Identifier: Apache-2.0
//
// Sockets for joining and control. Failures of a peer or of the network are results and not
// exceptions: connect_to() gives the reason, and its caller tries again.
#include "lib/wire/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <cerrno>
#include <cstring>

#include <rondo/error.h>

#include "base/interruption.h"
#include "base/shortage.h"
#include "base/text.h"

namespace rondo::wire {
namespace {

using V4 = sockaddr_in;
using V6 = sockaddr_in6;

// Rank 0 sends the records of all ranks to all ranks, n^2 of them. The kernel would keep some
// megabytes for each rank that does not read yet: gigabytes for some thousand ranks.
constexpr int send_buffer = 64 << 10;

template <class T>
T as(const Endpoint& endpoint) noexcept {
  T value{};
  std::memcpy(&value, &endpoint.storage, sizeof value);
  return value;
}

template <class T>
Endpoint from(const T& value) noexcept {
  Endpoint endpoint;
  std::memcpy(&endpoint.storage, &value, sizeof value);
  endpoint.bytes = sizeof value;
  return endpoint;
}

// ask: getsockname or getpeername.
template <class Ask>
Endpoint endpoint_of(int descriptor, Ask ask) {
  Endpoint endpoint;
  endpoint.bytes = sizeof endpoint.storage;
  const bool known =
      ask(descriptor, reinterpret_cast<sockaddr*>(&endpoint.storage), &endpoint.bytes) == 0;
  return known ? endpoint : Endpoint{};
}

void set_option(int descriptor, int level, int name, int value) noexcept {
  ::setsockopt(descriptor, level, name, &value, sizeof value);
}

base::FileDescriptor new_socket(const Endpoint& endpoint) {
  return base::FileDescriptor(::socket(endpoint.storage.ss_family,
                                       SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
}

// Sets `error` to errno on failure.
base::FileDescriptor try_listen(const Endpoint& endpoint, int& error) {
  base::FileDescriptor socket = new_socket(endpoint);
  if (socket) {
    set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (endpoint.storage.ss_family == AF_INET6) {
      const V6 v6 = as<V6>(endpoint);
      set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY,
                 IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr) ? 0 : 1);
    }
    if (::bind(socket.get(), endpoint.address(), endpoint.bytes) == 0 &&
        ::listen(socket.get(), SOMAXCONN) == 0)
      return socket;
  }
  error = errno;
  return {};
}

base::FileDescriptor try_listen_in_range(Endpoint endpoint, std::uint16_t first, std::uint16_t last,
                                         int& error) {
  if (endpoint.port() != 0 || first == 0) return try_listen(endpoint, error);
  for (std::uint32_t port = first; port <= std::max(first, last); ++port) {
    endpoint.set_port(static_cast<std::uint16_t>(port));
    if (base::FileDescriptor socket = try_listen(endpoint, error)) return socket;
    if (error != EADDRINUSE && error != EACCES) break;  // the next port would fail too
  }
  return {};
}

std::string remedy_of(int error, const Endpoint& endpoint) {
  if (error == EADDRINUSE)
    return "; another rank 0 or another program uses it (ss -ltnp names it): take another port, "
           "the same on all ranks: RONDO_RENDEZVOUS=tcp://HOST:PORT, or the launcher's MASTER_PORT";
  if (error == EACCES && endpoint.port() != 0 && endpoint.port() < 1024)
    return "; ports below 1024 need CAP_NET_BIND_SERVICE: choose a port from 1024 on";
  return base::remedy_of_shortage(error);
}

std::string why_not(const Endpoint& endpoint, std::uint16_t first, std::uint16_t last, int error) {
  if (endpoint.port() != 0 || first == 0 || (error != EADDRINUSE && error != EACCES))
    return endpoint.text() + ": " + base::describe_errno(error) + remedy_of(error, endpoint);
  return "no port from " + std::to_string(first) + " to " + std::to_string(std::max(first, last)) +
         " is free at " + endpoint.host() + ": " + base::describe_errno(error) +
         "; the range must hold a free port for every rank of this host and one more for rank 0";
}

}  // namespace

bool Endpoint::is_loopback() const noexcept {
  if (storage.ss_family == AF_INET) return (ntohl(as<V4>(*this).sin_addr.s_addr) >> 24) == 127;
  const V6 v6 = as<V6>(*this);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return v6.sin6_addr.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

bool Endpoint::is_any() const noexcept {
  if (storage.ss_family == AF_INET) return as<V4>(*this).sin_addr.s_addr == 0;
  const V6 v6 = as<V6>(*this);
  return IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr);
}

bool Endpoint::is_local() const {
  if (is_loopback()) return true;
  Endpoint any_port = *this;
  any_port.set_port(0);
  const base::FileDescriptor socket = new_socket(any_port);
  return socket && ::bind(socket.get(), any_port.address(), any_port.bytes) == 0;
}

std::uint16_t Endpoint::port() const noexcept {
  return ntohs(storage.ss_family == AF_INET ? as<V4>(*this).sin_port : as<V6>(*this).sin6_port);
}

void Endpoint::set_port(std::uint16_t port) noexcept {
  // Both families have the port at the same place.
  static_assert(offsetof(V4, sin_port) == offsetof(V6, sin6_port));
  const std::uint16_t big = htons(port);
  std::memcpy(reinterpret_cast<char*>(&storage) + offsetof(V4, sin_port), &big, sizeof big);
}

std::string Endpoint::host() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET) {
    const V4 v4 = as<V4>(*this);
    ::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
  } else if (storage.ss_family == AF_INET6) {
    const V6 v6 = as<V6>(*this);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
      ::inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof text);
    else
      ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  }
  return text;
}

std::string Endpoint::text() const {
  const std::string host_text = host();
  if (host_text.empty()) return "an unknown address";
  const bool brackets = host_text.find(':') != std::string::npos;
  return (brackets ? "[" + host_text + "]" : host_text) + ":" + std::to_string(port());
}

std::vector<Endpoint> parse_endpoint(std::string_view text) {
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return {};
  std::string_view host = text.substr(0, colon);
  const auto port = base::parse_whole<std::uint16_t>(text.substr(colon + 1)).value_or(0);
  if (port == 0) return {};
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (brackets) host = host.substr(1, host.size() - 2);
  V4 v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  V6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(port);
  const std::string number(host);
  if (!brackets && ::inet_pton(AF_INET, number.c_str(), &v4.sin_addr) == 1) return {from(v4)};
  if (brackets && ::inet_pton(AF_INET6, number.c_str(), &v6.sin6_addr) == 1) return {from(v6)};
  return {};
}

std::vector<Endpoint> loopback_address(std::uint16_t port) {
  V4 v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = htons(port);
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return {from(v4)};
}

std::vector<base::FileDescriptor> listen_on(const std::vector<Endpoint>& endpoints,
                                            std::uint16_t port_first, std::uint16_t port_last) {
  std::vector<base::FileDescriptor> listeners;
  std::string why = "no address to listen on";
  for (const Endpoint& endpoint : endpoints) {
    int error = 0;
    if (base::FileDescriptor listener =
            try_listen_in_range(endpoint, port_first, port_last, error)) {
      listeners.push_back(std::move(listener));
      continue;
    }
    why = why_not(endpoint, port_first, port_last, error);
    // One address family of a name may be missing here. But a port that another process has at one
    // address must not be shared with it.
    if (error == EADDRINUSE && endpoint.port() != 0) throw Error(Errc::system, why);
  }
  if (listeners.empty()) throw Error(Errc::system, why);
  return listeners;
}

Endpoint own_endpoint(int descriptor) {
  return endpoint_of(descriptor, ::getsockname);
}

Endpoint peer_endpoint(int descriptor) {
  return endpoint_of(descriptor, ::getpeername);
}

bool same_host(int descriptor) {
  const Endpoint peer = peer_endpoint(descriptor);
  if (peer.bytes == 0) return false;
  return peer.is_loopback() || peer.host() == own_endpoint(descriptor).host();
}

base::FileDescriptor connect_to(const Endpoint& endpoint, base::TimePoint until, std::string& why) {
  base::FileDescriptor socket = new_socket(endpoint);
  int error = 0;
  if (!socket) {
    error = errno;
  } else if (::connect(socket.get(), endpoint.address(), endpoint.bytes) != 0) {
    error = errno;
    if (error == EINPROGRESS) {
      socklen_t bytes = sizeof error;
      if (!wait_for(socket.get(), POLLOUT, until))
        error = ETIMEDOUT;
      else
        ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    }
  }
  // The kernel may choose the target port, on which nobody listens, as this socket's own port. Then
  // the socket connects to itself.
  if (error == 0 && own_endpoint(socket.get()).text() == peer_endpoint(socket.get()).text())
    error = ECONNREFUSED;
  if (error != 0) {
    why = endpoint.text() + ": " + base::describe_errno(error);
    return {};
  }
  tune(socket.get());
  return socket;
}

base::FileDescriptor accept_from(int listener) {
  base::FileDescriptor socket(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket) {
    tune(socket.get());
    set_option(socket.get(), SOL_SOCKET, SO_SNDBUF, send_buffer);
  }
  return socket;
}

void tune(int descriptor) noexcept {
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 3);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, 20'000);
}

bool wait_for(int descriptor, short events, base::TimePoint until) {
  for (;;) {
    pollfd entry{descriptor, events, 0};
    const base::TimePoint now = base::Clock::now();
    const int ready =
        ::poll(&entry, 1, base::poll_timeout(now, until, base::interruption_interval));
    if (ready > 0) return true;
    if (now >= until) return false;
    base::Interruption::check();
  }
}

void pause_until(base::TimePoint until) {
  for (base::TimePoint now = base::Clock::now(); now < until; now = base::Clock::now()) {
    ::poll(nullptr, 0, base::poll_timeout(now, until, base::interruption_interval));
    base::Interruption::check();
  }
}

}  // namespace rondo::wire
