// SPDX-License-Identifier: Apache-2.0
//
// Addresses, listening and connecting for the rendezvous and the control plane. Every descriptor is
// non-blocking and closed on exec. Thread-safe functions.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/file_descriptor.h"

namespace rondo::wire {

// An IPv4 or IPv6 address with a port.
struct Endpoint {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  const sockaddr* address() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
  bool is_loopback() const noexcept;
  bool is_any() const noexcept;  // 0.0.0.0, ::
  // True for an address of this machine, which is one that can be bound.
  bool is_local() const;
  std::uint16_t port() const noexcept;
  void set_port(std::uint16_t port) noexcept;
  // "10.0.0.7:41022", "[fd00::2]:41022".
  std::string text() const;
  // Without port and brackets, and without the ::ffff: of an IPv4 address that came over an IPv6
  // socket.
  std::string host() const;
};

// Reads "10.0.0.7:41022" or "[::1]:41022", only numbers. Empty for anything else.
std::vector<Endpoint> parse_endpoint(std::string_view text);
std::vector<Endpoint> loopback_address(std::uint16_t port);  // 127.0.0.1

// Listens on each of the endpoints that can be bound. A port of 0 becomes the first free one of the
// range, or any. Throws Error(system) if none can be bound or another process has one of the ports,
// with the reason and the remedy.
std::vector<base::FileDescriptor> listen_on(const std::vector<Endpoint>& endpoints,
                                            std::uint16_t port_first, std::uint16_t port_last);
Endpoint own_endpoint(int descriptor);
Endpoint peer_endpoint(int descriptor);
// True if both ends are on one host: the peer has a loopback address or the address of this end.
bool same_host(int descriptor);

// Returns no descriptor, with `why` set, if it is not connected by `until`.
base::FileDescriptor connect_to(const Endpoint& endpoint, base::TimePoint until, std::string& why);
base::FileDescriptor accept_from(int listener);
// Sets TCP_NODELAY, keepalive and TCP_USER_TIMEOUT. So a host that is gone is noticed within some
// 20 s, without traffic of our own.
void tune(int descriptor) noexcept;

// poll() for one descriptor; false if time is up.
bool wait_for(int descriptor, short events, base::TimePoint until);
// Sleeps until then; used between two attempts.
void pause_until(base::TimePoint until);

}  // namespace rondo::wire
