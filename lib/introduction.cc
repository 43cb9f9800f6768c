// SPDX-License-Identifier: Apache-2.0
#include "lib/introduction.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include <rondo/version.h>

#include "base/log.h"
#include "base/process.h"
#include "base/processor.h"
#include "base/text.h"
#include "collectives/schedules/call.h"
#include "lib/settings/settings.h"
#include "lib/wire/join_report.h"

namespace rondo::lib {
namespace {

std::string who(const rendezvous::Place& place) {
  return fmt::format("rank {} of {}{}", place.rank, place.size,
                     place.group.empty() ? "" : " (split " + place.group + ")");
}

// "2 hosts (ranks 0-3 | ranks 4-7)".
std::string ranks_by_host(const schedules::Hosts& hosts) {
  constexpr int most_shown = 16;
  std::string text = fmt::format("{} {} (", hosts.count(), hosts.count() == 1 ? "host" : "hosts");
  for (int host = 0; host < std::min(hosts.count(), most_shown); ++host) {
    const std::span<const int> ranks = hosts.on(host);
    text += (host == 0 ? "" : " | ") + base::list_of_ranks({ranks.begin(), ranks.end()});
  }
  return text + (hosts.count() > most_shown ? " | and more)" : ")");
}

// "2 us and 10 GB/s".
std::string link_text(const PlanLinkCosts& link) {
  return fmt::format("{:.3g} us and {:.3g} GB/s", link.latency_s * 1e6,
                     1e-9 / link.seconds_per_byte);
}

// "4 ranks share 2 cores".
std::string cores_text(const HostCores& cores) {
  return fmt::format("{} {} {} {}", cores.ranks,
                     cores.ranks == 1  ? "rank uses"
                     : cores.crowded() ? "ranks share"
                                       : "ranks use",
                     cores.cores, cores.cores == 1 ? "core" : "cores");
}

// One line for all peers that are reached in the same way for the same reason.
void log_routes(const rendezvous::Place& place, const Routes& routes) {
  std::map<std::pair<std::string, std::string>, std::vector<int>> ways;
  for (int peer = 0; peer < place.size; ++peer) {
    const auto rank = static_cast<std::size_t>(peer);
    if (routes.by_rank()[rank] == nullptr) continue;
    base::log_line(base::LogLevel::debug, fmt::format("{}: rank {} over {}", who(place), peer,
                                                      routes.describe_peer(peer)));
    ways[{std::string(routes.by_rank()[rank]->name()), routes.passed_over()[rank]}].push_back(peer);
  }
  for (const auto& [way, ranks] : ways) {
    const auto first = static_cast<std::size_t>(ranks.front());
    const std::string how = routes.by_rank()[first]->describe_peer(ranks.front());
    base::log_line(
        base::LogLevel::info,
        fmt::format("{}: {} to {}{}{}{}", who(place), way.first, base::list_of_ranks(ranks),
                    way.second.empty() ? ", the nearest" : "; not " + way.second,
                    how.empty() ? "" : fmt::format("; to rank {}: ", ranks.front()), how));
  }
}

void log_place(const rendezvous::Place& place, const schedules::Hosts& hosts, const Plans& plans,
               nanoseconds took) {
  base::log_line(
      base::LogLevel::info,
      fmt::format("Rondo {}: {} ranks on {}; met at {}, as {} says; joined in {:.3f} s", version(),
                  place.size, ranks_by_host(hosts), place.url.empty() ? "a store" : place.url,
                  place.source, std::chrono::duration<double>(took).count()));
  base::log_line(base::LogLevel::info,
                 fmt::format("planner's constants are {}: {} within a host, {} between hosts",
                             plans.describe_source(), link_text(plans.constants().host),
                             link_text(plans.constants().network)));
}

}  // namespace

void introduce(const rendezvous::Place& place, const Options& options, const HostMap& hosts,
               const Routes& routes, const Plans& plans, nanoseconds took) {
  if (!base::log_enabled(base::LogLevel::info)) return;
  if (place.rank == 0) log_place(place, hosts.hosts, plans, took);
  std::string settings;
  for (const auto& [variable, value] : settings::settings_in_force(options))
    settings += fmt::format("{}{}={}", settings.empty() ? "; settings " : " ", variable, value);
  base::log_line(base::LogLevel::info,
                 fmt::format("{}: process {} on {}, {}, kernels {}{}", who(place), ::getpid(),
                             base::host_name(), cores_text(hosts.cores),
                             base::name_of(base::best_isa()), settings));
  log_routes(place, routes);
}

void log_plan(const rendezvous::Place& place, Collective operation, std::size_t bytes,
              const plan::Plan& plan, std::string_view transports) {
  const base::LogLevel level = place.rank == 0 ? base::LogLevel::info : base::LogLevel::debug;
  if (!base::log_enabled(level)) return;
  base::log_line(level, fmt::format("{}: {} of {}: {} over {}, segments of {}, {} in flight",
                                    who(place), name_of(operation), base::describe_bytes(bytes),
                                    schedules::name_of(plan.algorithm), transports,
                                    base::describe_bytes(plan.segment_bytes), plan.depth));
}

}  // namespace rondo::lib
