// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/process.h"
#include "lib/connect.h"
#include "lib/reachability.h"
#include "transports/shm/segment.h"
#include "transports/shm/shm.h"
#include "transports/tcp/tcp.h"

namespace rondo::lib {

namespace {

// In order of preference.
constexpr std::array known_names{std::string_view{"shm"}, std::string_view{"tcp"}};

bool is_allowed(std::string_view name, const Options& options) {
  const auto& allowed = options.transports;
  return allowed.empty() || std::ranges::find(allowed, name) != allowed.end();
}

std::unique_ptr<transports::Transport> shm_transport(const rendezvous::Place& place) {
  shm::Options shm;
  shm.rank = place.rank;
  shm.size = place.size;
  shm.secret = place.secret;
  shm.host = base::host_identity();
  shm.deadline = place.deadline;
  return shm::make_shm(shm);
}

std::unique_ptr<transports::Transport> tcp_transport(const rendezvous::Place& place,
                                                     const Options& options) {
  tcp::Options tcp;
  tcp.rank = place.rank;
  tcp.size = place.size;
  tcp.secret = place.secret;
  tcp.this_host_only = place.this_host_only;
  tcp.between_hosts = place.between_hosts;
  if (place.protect_all) tcp.within_host = tcp.between_hosts;
  tcp.host = base::host_identity();
  tcp.interfaces = options.interfaces;
  if (options.connections < 1 || options.connections > static_cast<int>(connect::most_connections))
    throw Error(Errc::invalid_argument,
                fmt::format("connections is {}, it must be from 1 to {}", options.connections,
                            connect::most_connections));
  tcp.connections = static_cast<unsigned>(options.connections);
  tcp.port_first = options.port_first;
  tcp.port_last = options.port_last;
  tcp.connect_deadline = options.connect_deadline;
  return tcp::make_tcp(tcp);
}

}  // namespace

TransportList default_transports(const rendezvous::Place& place, const Options& options) {
  for (const std::string& name : options.transports)
    if (std::ranges::find(known_names, name) == known_names.end())
      throw Error(Errc::invalid_argument,
                  fmt::format("transport '{}' is unknown; this build has: shm, tcp", name));
  TransportList list;
  if (is_allowed("shm", options)) list.push_back(shm_transport(place));
  if (is_allowed("tcp", options)) list.push_back(tcp_transport(place, options));
  return list;
}

bool allows_all_transports(const Options& options) {
  return std::ranges::all_of(known_names,
                             [&](std::string_view name) { return is_allowed(name, options); });
}

std::vector<TransportInfo> describe_transports() {
  const std::string obstacle = shm::obstacle();
  return {{"shm", obstacle.empty(), obstacle.empty() ? "between ranks of this host" : obstacle},
          {"tcp", true, "between any ranks"}};
}

std::size_t shared_segment_bytes(int ranks_on_host) noexcept {
  return shm::SegmentLayout(static_cast<std::size_t>(ranks_on_host)).bytes();
}

std::vector<InterfaceInfo> describe_interfaces(const std::vector<std::string>& filters) {
  return connect::list_interfaces(filters);
}

}  // namespace rondo::lib
