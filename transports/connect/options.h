// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <rondo/info.h>

#include "base/handshake.h"

namespace rondo::connect {

// The most connections that a link may have, over all pairs of interfaces together.
inline constexpr unsigned most_connections = 16;

// This rank's number, where it listens, and how it connects.
struct Options {
  int rank = 0;
  int size = 1;
  std::string secret;  // empty: listens on loopback only and reaches only ranks of this host
  bool this_host_only = false;  // the same with a secret that other hosts cannot know
  // Protection of the frames that follow the handshake, on connections that leave this host and on
  // the others. The stronger of both ends' values holds.
  base::Protection between_hosts = base::Protection::headers, within_host = base::Protection::none;
  std::string host;                     // base::host_identity() of this rank
  std::vector<std::string> interfaces;  // filters as in Options::interfaces
  std::uint16_t port_first = 0, port_last = 0;
  std::chrono::milliseconds connect_deadline{30'000};  // for one connection, retries included
  std::chrono::milliseconds peer_timeout{20'000};  // TCP_USER_TIMEOUT, and the bound of keepalive
};

// The addresses of the network interfaces of this machine, for `rondo info`. Throws
// Error(invalid_argument) for a filter that names an interface that does not exist.
std::vector<InterfaceInfo> list_interfaces(const std::vector<std::string>& filters);

}  // namespace rondo::connect
