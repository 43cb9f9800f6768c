// SPDX-License-Identifier: Apache-2.0
#include "tools/plan/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

constexpr std::uint64_t most = 100'000;

std::vector<int> counts_of(const HostFlags& flags) {
  std::vector<int> counts;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != std::string::npos; begin = end + 1) {
    end = flags.ranks_per_host.find(',', begin);
    const std::string part =
        flags.ranks_per_host.substr(begin, end == std::string::npos ? end : end - begin);
    counts.push_back(parse_int("--ranks-per-host", part, 0, most));
  }
  return counts;
}

bool lists(const HostFlags& flags) {
  return flags.ranks_per_host.find(',') != std::string::npos;
}

}  // namespace

bool any(const HostFlags& flags) {
  return !flags.hosts.empty() || lists(flags) || counts_of(flags).front() > 0;
}

int ranks_of(const HostFlags& flags) {
  if (!lists(flags)) return 0;
  const std::vector<int> counts = counts_of(flags);
  if (std::find(counts.begin(), counts.end(), 0) != counts.end())
    throw UsageError(
        fmt::format("--ranks-per-host {}: a host has at least one rank", flags.ranks_per_host));
  const auto sum = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  if (sum > most)
    throw UsageError(fmt::format("--ranks-per-host {}: too many ranks", flags.ranks_per_host));
  return static_cast<int>(sum);
}

std::vector<int> hosts_of(const HostFlags& flags, int ranks) {
  if (!any(flags)) return {};
  std::vector<int> hosts;
  if (const int listed = ranks_of(flags); listed > 0) {
    if (listed != ranks || !flags.hosts.empty())
      throw UsageError(
          fmt::format("--ranks-per-host {}: this list places {} ranks; leave out --ranks and "
                      "--hosts",
                      flags.ranks_per_host, listed));
    int host = 0;
    for (const int count : counts_of(flags))
      hosts.insert(hosts.end(), static_cast<std::size_t>(count), host++);
    return hosts;
  }
  const int each = counts_of(flags).front();
  int count = flags.hosts.empty() ? (ranks - 1) / std::max(1, each) + 1
                                  : parse_int("--hosts", flags.hosts, 1, most);
  count = std::min(count, ranks);
  if (each > 0 && (count != (ranks - 1) / each + 1))
    throw UsageError(
        fmt::format("--ranks-per-host {}: does not fit {} ranks on {} hosts", each, ranks, count));
  const auto share = [&](int rank) {
    return static_cast<int>(static_cast<std::int64_t>(rank) * count / ranks);
  };
  for (int rank = 0; rank < ranks; ++rank)
    hosts.push_back(flags.placement == "turns" ? rank % count
                    : each > 0                 ? rank / each
                                               : share(rank));
  return hosts;
}

}  // namespace rondo::tools
