// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "transports/connect/options.h"

namespace rondo::tcp {
namespace {

// A pair that is slower than the fastest by more than this factor is left out. A piece on it would
// hold up frames whose other pieces have long arrived.
constexpr std::uint32_t slowest_share = 8;

struct Side {
  explicit Side(const connect::Address& address)
      : address(address), unused(address.endpoints.size()) {}
  connect::Rail rail(std::size_t i) const {
    return i < address.rails.size() ? address.rails[i] : connect::Rail{};
  }
  const boost::asio::ip::tcp::endpoint& endpoint(std::size_t i) const {
    return address.endpoints[i];
  }
  const connect::Address& address;
  std::vector<std::string> unused;  // for each endpoint: why it is in no pair
};

bool has(const connect::Address& address, const boost::asio::ip::address& wanted) {
  return std::ranges::any_of(address.endpoints,
                             [&](const auto& one) { return one.address() == wanted; });
}

// Why this endpoint cannot be in any pair, whatever interfaces the peer has; empty if it can.
std::string refusal(const Side& side, std::size_t i, const connect::Address& peer) {
  const auto address = side.endpoint(i).address();
  if (address.is_loopback()) return "loopback";
  if (!side.rail(i).pairs) return "an interface for containers: name it in the filter to use it";
  if (side.rail(i).prefix_bits == 0) return "no network is known for it";
  if (has(peer, address)) return "both hosts have this address";
  return {};
}

bool interface_used(const Side& side, const std::vector<PathPlan::Pair>& pairs, std::size_t i,
                    std::size_t PathPlan::Pair::*place) {
  return std::ranges::any_of(pairs, [&](const auto& pair) {
    return side.rail(pair.*place).interface == side.rail(i).interface;
  });
}

bool one_network(const Side& lower, std::size_t i, const Side& higher, std::size_t j) {
  const unsigned bits = std::min<unsigned>(lower.rail(i).prefix_bits, higher.rail(j).prefix_bits);
  return connect::same_network(lower.endpoint(i).address(), higher.endpoint(j).address(), bits);
}

void pair_up(Side& lower, Side& higher, std::vector<PathPlan::Pair>& pairs) {
  using Pair = PathPlan::Pair;
  for (std::size_t i = 0; i < lower.unused.size(); ++i) {
    if (!(lower.unused[i] = refusal(lower, i, higher.address)).empty()) continue;
    lower.unused[i] = "no network in common";
    for (std::size_t j = 0; j < higher.unused.size(); ++j) {
      if (!refusal(higher, j, lower.address).empty() || !one_network(lower, i, higher, j)) continue;
      lower.unused[i] = "its interface has a path already";
      if (interface_used(lower, pairs, i, &Pair::lower) ||
          interface_used(higher, pairs, j, &Pair::higher))
        continue;
      pairs.push_back({i, j});
      lower.unused[i].clear();
      break;
    }
  }
  for (std::size_t j = 0; j < higher.unused.size(); ++j) {
    const auto paired = [&](const Pair& pair) { return pair.higher == j; };
    if (std::ranges::any_of(pairs, paired) ||
        !(higher.unused[j] = refusal(higher, j, lower.address)).empty())
      continue;
    higher.unused[j] = interface_used(higher, pairs, j, &Pair::higher)
                           ? "its interface has a path already"
                           : "no network in common";
  }
}

// Sorts the fastest pair first and drops those that are too slow. A pair is as fast as its slower
// end. Pairs of unknown speed come last and are kept.
void order_by_speed(Side& lower, Side& higher, std::vector<PathPlan::Pair>& pairs) {
  const auto speed = [&](const PathPlan::Pair& pair) {
    return std::min(lower.rail(pair.lower).speed, higher.rail(pair.higher).speed);
  };
  std::ranges::stable_sort(pairs, std::greater{}, speed);
  if (pairs.empty()) return;
  const std::uint32_t best = speed(pairs.front());
  std::erase_if(pairs, [&](const PathPlan::Pair& pair) {
    const std::uint32_t own = speed(pair);
    if (own == 0 || own >= best / slowest_share) return false;
    lower.unused[pair.lower] = higher.unused[pair.higher] =
        fmt::format("{} Mbit/s, too slow beside {} Mbit/s", own, best);
    return true;
  });
}

}  // namespace

PathPlan plan_paths(const connect::Address& lower, const connect::Address& higher) {
  PathPlan plan;
  Side first(lower), second(higher);
  if (lower.host.empty() || lower.host != higher.host) {
    pair_up(first, second, plan.pairs);
    order_by_speed(first, second, plan.pairs);
    if (plan.pairs.size() > connect::most_connections) plan.pairs.resize(connect::most_connections);
  }
  const std::size_t connections = std::min(lower.connections, higher.connections);
  plan.paths = std::clamp<std::size_t>(connections * std::max<std::size_t>(1, plan.pairs.size()), 1,
                                       connect::most_connections);
  plan.lower_unused = std::move(first.unused);
  plan.higher_unused = std::move(second.unused);
  return plan;
}

std::string describe(const PathPlan& plan, const connect::Address& mine,
                     const connect::Address& theirs, bool lower,
                     const boost::asio::ip::tcp::endpoint& by_routing) {
  std::string text = fmt::format("{} path{}", plan.paths, plan.paths == 1 ? "" : "s");
  for (std::size_t i = 0; i < plan.pairs.size() && i < plan.paths; ++i) {
    const std::size_t here = lower ? plan.pairs[i].lower : plan.pairs[i].higher;
    const std::size_t there = lower ? plan.pairs[i].higher : plan.pairs[i].lower;
    text += fmt::format("{} {} -> {} ({})", i == 0 ? ":" : ",",
                        mine.endpoints[here].address().to_string(),
                        theirs.endpoints[there].address().to_string(), mine.rails[here].interface);
  }
  if (plan.pairs.empty()) text += fmt::format(" to {}", connect::to_text(by_routing));
  if (theirs.host == mine.host) return text;
  const auto& unused = lower ? plan.lower_unused : plan.higher_unused;
  for (std::size_t i = 0; i < unused.size(); ++i)
    if (!unused[i].empty() && !mine.endpoints[i].address().is_loopback())
      text += fmt::format("; not {} ({}): {}", mine.endpoints[i].address().to_string(),
                          mine.rails[i].interface, unused[i]);
  return text;
}

}  // namespace rondo::tcp
