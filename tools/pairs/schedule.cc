// SPDX-License-Identifier: Apache-2.0
#include "tools/pairs/schedule.h"

#include <algorithm>
#include <utility>

namespace rondo::tools {
namespace {

using Group = std::vector<std::size_t>;  // the ends of a host

std::vector<Group> group_by_host(std::span<const End> ends) {
  std::vector<Group> groups;
  std::vector<std::size_t> hosts;
  for (std::size_t end = 0; end < ends.size(); ++end) {
    const auto known = std::ranges::find(hosts, ends[end].host);
    const auto place = static_cast<std::size_t>(known - hosts.begin());
    if (known == hosts.end()) {
      hosts.push_back(ends[end].host);
      groups.emplace_back();
    }
    groups[place].push_back(end);
  }
  return groups;
}

// The circle method: all but the last of an even number of players stand in a circle. In each round
// they move on by one; the last plays with the first place, and the others with the place opposite.
// An odd number gets one player more, whose partner has no pair in that round.
std::vector<Round> circle(std::size_t players) {
  std::vector<Round> rounds;
  const std::size_t even = players + players % 2;
  if (even < 2) return rounds;
  const std::size_t places = even - 1;
  for (std::size_t round = 0; round < places; ++round) {
    Round pairs;
    for (std::size_t i = 0; i < even / 2; ++i) {
      const std::size_t one = (round + i) % places;
      const std::size_t other = i == 0 ? even - 1 : (round + places - i) % places;
      if (std::max(one, other) < players)
        pairs.push_back({std::min(one, other), std::max(one, other)});
    }
    rounds.push_back(std::move(pairs));
  }
  return rounds;
}

Pair ordered(std::size_t one, std::size_t other) {
  return {std::min(one, other), std::max(one, other)};
}

// The rounds in which each pair of hosts in `hosts` meets with all of its ends, one pair of ends at
// a time.
void add_between(const std::vector<Group>& groups, const Round& hosts, std::vector<Round>& rounds) {
  for (std::size_t turn = 0;; ++turn) {
    Round round;
    for (const Pair& pair : hosts) {
      const Group& one = groups[pair.first];
      const Group& other = groups[pair.second];
      if (turn < one.size() * other.size())
        round.push_back(ordered(one[turn / other.size()], other[turn % other.size()]));
    }
    if (round.empty()) return;
    rounds.push_back(std::move(round));
  }
}

// The pairs within hosts, one of each host at a time.
void add_within(const std::vector<Group>& groups, std::vector<Round>& rounds) {
  const std::size_t before = rounds.size();
  for (const Group& group : groups) {
    std::size_t at = before;
    for (const Round& round : circle(group.size()))
      for (const Pair& pair : round) {
        if (at == rounds.size()) rounds.emplace_back();
        rounds[at++].push_back(ordered(group[pair.first], group[pair.second]));
      }
  }
}

}  // namespace

std::vector<End> ends_of(std::span<const HostRecord> hosts, bool every_rank) {
  std::vector<End> ends;
  for (std::size_t host = 0; host < hosts.size(); ++host)
    for (std::size_t i = 0; i < (every_rank ? hosts[host].ranks.size() : 1); ++i)
      ends.push_back({hosts[host].ranks[i], host});
  return ends;
}

std::vector<Round> rounds_of(std::span<const End> ends) {
  const std::vector<Group> groups = group_by_host(ends);
  std::vector<Round> rounds;
  for (const Round& hosts : circle(groups.size())) add_between(groups, hosts, rounds);
  add_within(groups, rounds);
  return rounds;
}

std::vector<Round> rounds_of(std::span<const End> ends, std::span<const Pair> pairs) {
  std::vector<Round> rounds;
  const auto meets = [&](const Pair& one, const Pair& other) {
    for (const std::size_t a : {one.first, one.second})
      for (const std::size_t b : {other.first, other.second})
        if (ends[a].host == ends[b].host) return true;
    return false;
  };
  for (const Pair& pair : pairs) {
    const auto free = std::ranges::find_if(rounds, [&](const Round& round) {
      return std::ranges::none_of(round, [&](const Pair& other) { return meets(pair, other); });
    });
    if (free == rounds.end())
      rounds.push_back({pair});
    else
      free->push_back(pair);
  }
  return rounds;
}

}  // namespace rondo::tools
