// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "lib/connect.h"
#include "lib/reachability.h"
#include "transports/tcp/tcp.h"

namespace rondo {

TransportList default_transports(const Place& place, const Options& options) {
  for (const std::string& name : options.transports) {
    if (name != "tcp")
      throw Error(Errc::invalid_argument,
                  fmt::format("transport '{}' is unknown; this build has: tcp", name));
  }
  TcpOptions tcp;
  tcp.rank = place.rank;
  tcp.size = place.size;
  tcp.secret = place.secret;
  tcp.this_host_only = place.this_host_only;
  tcp.host = host_identity();
  tcp.interfaces = options.interfaces;
  tcp.port_first = options.port_first;
  tcp.port_last = options.port_last;
  tcp.connect_deadline = options.connect_deadline;
  TransportList list;
  list.push_back(make_tcp(tcp));
  return list;
}

std::vector<TransportInfo> describe_transports() {
  return {{"tcp", true, "between any ranks"}};
}

std::vector<InterfaceInfo> describe_interfaces(const std::vector<std::string>& filters) {
  std::vector<InterfaceInfo> result;
  for (const InterfaceAddress& one : list_interfaces(filters))
    result.push_back({one.interface, one.address, one.loopback, one.chosen, one.why});
  return result;
}

}  // namespace rondo
