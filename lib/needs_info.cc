// SPDX-License-Identifier: Apache-2.0
#include <rondo/info.h>

#include <fmt/format.h>

#include <algorithm>

#include <rondo/error.h>

#include "lib/needs.h"
#include "lib/reachability.h"
#include "lib/settings.h"

namespace rondo {
namespace {

bool allows(const Options& options, std::string_view name) {
  return options.transports.empty() ||
         std::ranges::find(options.transports, name) != options.transports.end();
}

int listening_addresses(const Options& options) {
  const auto interfaces = lib::describe_interfaces(options.interfaces);
  return static_cast<int>(
      std::max<std::ptrdiff_t>(1, std::ranges::count_if(interfaces, &InterfaceInfo::chosen)));
}

}  // namespace

NeedsInfo compute_needs(int ranks, int ranks_on_host, int rank, const Options& given) {
  if (ranks < 1 || ranks_on_host < 1 || ranks_on_host > ranks || rank < 0 || rank >= ranks)
    throw Error(Errc::invalid_argument,
                fmt::format("rank {} of {} ranks, with {} on its host, is impossible", rank, ranks,
                            ranks_on_host));
  const Options options = lib::with_environment(given);
  lib::DescriptorShape shape;
  shape.ranks = ranks;
  shape.rank = rank;
  shape.shm = allows(options, "shm");
  shape.tcp = allows(options, "tcp");
  shape.connections = options.connections;
  shape.shm_peers = shape.shm ? ranks_on_host - 1 : 0;
  shape.tcp_peers = shape.tcp ? ranks - 1 - shape.shm_peers : 0;
  shape.tcp_addresses = ranks > 1 && shape.tcp ? listening_addresses(options) : 0;
  const lib::DescriptorNeeds descriptors = lib::descriptors_of(shape);
  NeedsInfo needs;
  needs.descriptors_to_connect = descriptors.connect;
  needs.descriptors_idle = descriptors.idle;
  needs.descriptors_most = descriptors.most;
  needs.threads = ranks == 1 ? 0 : shape.tcp ? 3 : 2;
  needs.ports = static_cast<std::size_t>(shape.tcp_addresses);
  needs.staging_bytes = ranks == 1 ? 0 : options.staging_bytes;
  if (shape.shm_peers > 0) needs.shared_bytes = lib::shared_segment_bytes(ranks_on_host);
  return needs;
}

}  // namespace rondo
