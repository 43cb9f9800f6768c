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
void log_routes(const Introduction& of) {
  std::map<std::pair<std::string, std::string>, std::vector<int>> ways;
  for (std::size_t peer = 0; peer < of.routes.size(); ++peer) {
    if (of.routes[peer] == nullptr) continue;
    const std::string how = of.routes[peer]->describe_peer(static_cast<int>(peer));
    if (base::log_enabled(base::LogLevel::debug))
      base::log_line(base::LogLevel::debug,
                     fmt::format("{}: rank {} over {}{}{}", who(of.place), peer,
                                 of.routes[peer]->name(), how.empty() ? "" : ", ", how));
    const std::string why = peer < of.passed_over.size() ? of.passed_over[peer] : std::string();
    ways[{std::string(of.routes[peer]->name()), why}].push_back(static_cast<int>(peer));
  }
  for (const auto& [way, ranks] : ways) {
    const auto first = static_cast<std::size_t>(ranks.front());
    const std::string how = of.routes[first]->describe_peer(ranks.front());
    base::log_line(
        base::LogLevel::info,
        fmt::format("{}: {} to {}{}{}{}", who(of.place), way.first, base::list_of_ranks(ranks),
                    way.second.empty() ? ", the nearest" : "; not " + way.second,
                    how.empty() ? "" : fmt::format("; to rank {}: ", ranks.front()), how));
  }
}

void log_place(const Introduction& of) {
  const rendezvous::Place& place = of.place;
  base::log_line(
      base::LogLevel::info,
      fmt::format("Rondo {}: {} ranks on {}; met at {}, as {} says; joined in {:.3f} s", version(),
                  place.size, ranks_by_host(of.hosts), place.url.empty() ? "a store" : place.url,
                  place.source, std::chrono::duration<double>(of.took).count()));
  base::log_line(base::LogLevel::info,
                 fmt::format("planner's constants are {}: {} within a host, {} between hosts",
                             of.constants_from, link_text(of.constants.host),
                             link_text(of.constants.network)));
}

}  // namespace

void introduce(const Introduction& of) {
  if (!base::log_enabled(base::LogLevel::info)) return;
  if (of.place.rank == 0) log_place(of);
  std::string settings;
  for (const auto& [variable, value] : settings::settings_in_force(of.options))
    settings += fmt::format("{}{}={}", settings.empty() ? "; settings " : " ", variable, value);
  base::log_line(base::LogLevel::info,
                 fmt::format("{}: process {} on {}, {}, kernels {}{}", who(of.place), ::getpid(),
                             base::host_name(), cores_text(of.cores),
                             base::name_of(base::best_isa()), settings));
  log_routes(of);
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
