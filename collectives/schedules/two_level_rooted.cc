// SPDX-License-Identifier: Apache-2.0
//
// Two levels with a root, and the barrier. Each host has one leader; on the root's host it is the
// root. Between hosts the data goes along a chain of hosts, one slice for each rail. Tokens go to
// and from the leaders. Between leaders they go along a binomial tree; in the barrier the leaders
// run a dissemination barrier.
#include <algorithm>
#include <bit>

#include "collectives/schedules/schedules.h"

namespace rondo::schedules {

namespace {

// The token steps of one rank. Hosts are counted from the root's: node 0 is the root's host.
class Leaders {
 public:
  Leaders(int rank, int root, const Hosts& hosts)
      : hosts_(hosts),
        rank_(rank),
        root_(root),
        own_(leader_of(hosts.host(rank))),
        node_(wrap(hosts.host(rank) - hosts.host(root), hosts.count())) {}

  bool leads() const { return rank_ == own_; }
  // Hops of the binomial tree, and rounds of the dissemination.
  int height() const { return std::bit_width(static_cast<unsigned>(hosts_.count() - 1)); }

  // Tokens to the leader, in round 1.
  void append_local_up(std::vector<Step>& steps, std::uint32_t token) const {
    if (!leads())
      steps.push_back({.slice = token, .to = own_});
    else
      for_each_local(
          [&](int peer) { steps.push_back({.slice = token, .from = peer, .round = 1}); });
  }
  // Tokens from the leader, in the round after `round`.
  void append_local_down(std::vector<Step>& steps, std::uint32_t token, std::uint32_t round) const {
    if (!leads())
      steps.push_back({.slice = token, .from = own_, .round = round + 1});
    else
      for_each_local(
          [&](int peer) { steps.push_back({.slice = token, .to = peer, .round = round}); });
  }
  // Tokens towards the root, which has heard from all after height() + 1 rounds.
  void append_up(std::vector<Step>& steps, std::uint32_t token) const {
    append_local_up(steps, token);
    if (!leads()) return;
    for (int bit = 0; bit < children(); ++bit)
      if (node_ + (1 << bit) < hosts_.count())
        steps.push_back({.slice = token, .from = at(node_ + (1 << bit)), .round = number(bit) + 2});
    if (node_ != 0)
      steps.push_back(
          {.slice = token, .to = at(node_ & (node_ - 1)), .round = number(children()) + 1});
  }
  // Tokens away from the root, from the round after `round` on.
  void append_down(std::vector<Step>& steps, std::uint32_t token, std::uint32_t round) const {
    const std::uint32_t done = round + number(height());
    if (leads() && node_ != 0)
      steps.push_back(
          {.slice = token, .from = at(node_ & (node_ - 1)), .round = done - number(children())});
    for (int bit = leads() ? children() : 0; bit-- > 0;)
      if (node_ + (1 << bit) < hosts_.count())
        steps.push_back(
            {.slice = token, .to = at(node_ + (1 << bit)), .round = done - number(bit) - 1});
    append_local_down(steps, token, done);
  }
  // Tokens between leaders, in the height() rounds after `round`: in the k-th of them, from 0, each
  // leader sends to the one 2^k hosts further on.
  void append_dissemination(std::vector<Step>& steps, std::uint32_t token,
                            std::uint32_t round) const {
    if (!leads()) return;
    for (int k = 0; k < height(); ++k) {
      steps.push_back({.slice = token, .to = at(node_ + (1 << k)), .round = round + number(k)});
      steps.push_back(
          {.slice = token, .from = at(node_ - (1 << k)), .round = round + number(k) + 1});
    }
  }
  template <class Function>
  void for_each_local(Function function) const {
    for (const int peer : hosts_.on(hosts_.host(rank_)))
      if (peer != rank_) function(peer);
  }

 private:
  int leader_of(int host) const {
    return host == hosts_.host(root_) ? root_ : hosts_.on(host).front();
  }
  int at(int node) const { return leader_of(wrap(hosts_.host(root_) + node, hosts_.count())); }
  int children() const {
    return node_ == 0 ? height() : std::countr_zero(static_cast<unsigned>(node_));
  }

  const Hosts& hosts_;
  int rank_, root_, own_, node_;
};

// Rails are dealt to the ranks of a host in order, as in an all-reduce.
int owner(const Hosts& hosts, int host, int rail) {
  const auto on = hosts.on(wrap(host, hosts.count()));
  return on[static_cast<std::size_t>(rail) * on.size() /
            static_cast<std::size_t>(hosts.most_on_a_host())];
}

void sort_steps(std::vector<Step>& steps, std::size_t first) {
  std::stable_sort(steps.begin() + static_cast<std::ptrdiff_t>(first), steps.end(),
                   [](const Step& a, const Step& b) {
                     return a.round != b.round ? a.round < b.round : a.slice < b.slice;
                   });
}

}  // namespace

// Only the root may finish a sum. On rails that the root does not own, its host sums without the
// root, and the root adds its own value last.
Schedule two_level_reduce(int rank, int size, int root, const Hosts& hosts) {
  if (hosts.ranks() == 0) return two_level_reduce(rank, size, root, Hosts::in_blocks({&size, 1}));
  const Leaders leaders(rank, root, hosts);
  const int own = hosts.host(rank), home = hosts.host(root), last = hosts.count() - 1;
  const int hop = wrap(own - home - 1, hosts.count());
  const std::uint32_t local_round = number(std::max(1, hop)), root_round = number(last + 2);
  Schedule schedule{.slices = number(hosts.most_on_a_host()),
                    .rounds = root_round + number(leaders.height()) + 1,
                    .steps = {}};
  auto& steps = schedule.steps;
  for (std::uint32_t slice = 0; slice < schedule.slices; ++slice) {
    const int rail = static_cast<int>(slice), mine = owner(hosts, own, rail);
    if (rank != mine && rank != root)
      steps.push_back({.slice = slice, .to = mine, .round = local_round - 1});
    if (rank == mine) {
      leaders.for_each_local([&](int peer) {
        if (peer != root)
          steps.push_back({.slice = slice, .from = peer, .reduce = true, .round = local_round});
      });
      if (hop > 0)
        steps.push_back({.slice = slice,
                         .from = owner(hosts, own - 1, rail),
                         .reduce = true,
                         .round = number(hop + 1)});
      if (rank == root)
        steps.back().keep = true;
      else
        steps.push_back({.slice = slice,
                         .to = hop < last ? owner(hosts, own + 1, rail) : root,
                         .round = number(hop + 1)});
    } else if (rank == root) {
      steps.push_back(
          {.slice = slice, .from = mine, .reduce = true, .keep = true, .round = root_round});
    }
  }
  sort_steps(steps, 0);
  leaders.append_down(steps, schedule.slices, root_round);
  return schedule;
}

// The root sends each rank of its host the slices of that rank's rails. The owner of a rail sends
// its slice to the next host and to the other ranks of its own host.
Schedule two_level_broadcast(int rank, int size, int root, const Hosts& hosts) {
  if (hosts.ranks() == 0)
    return two_level_broadcast(rank, size, root, Hosts::in_blocks({&size, 1}));
  const Leaders leaders(rank, root, hosts);
  const int own = hosts.host(rank), home = hosts.host(root), last = hosts.count() - 1;
  const int hop = wrap(own - home, hosts.count());
  const std::uint32_t before =
      number(leaders.height() + 1);  // rounds of the tokens, which go first
  Schedule schedule{
      .slices = number(hosts.most_on_a_host()), .rounds = before + number(last) + 2, .steps = {}};
  auto& steps = schedule.steps;
  if (rank == root)
    for (std::uint32_t slice = 0; slice < schedule.slices; ++slice)
      steps.push_back({.slice = slice, .keep = true});
  leaders.append_up(steps, schedule.slices);
  const std::size_t first = steps.size();
  // The round in which the owners on this host receive the slices of their rails.
  const std::uint32_t here = before + number(hop) + 1;
  for (std::uint32_t slice = 0; slice < schedule.slices; ++slice) {
    const int rail = static_cast<int>(slice), mine = owner(hosts, own, rail);
    if (rank == mine) {
      if (rank != root)
        steps.push_back({.slice = slice,
                         .from = hop == 0 ? root : owner(hosts, own - 1, rail),
                         .keep = true,
                         .round = here});
      if (hop < last)
        steps.push_back({.slice = slice, .to = owner(hosts, own + 1, rail), .round = here});
      leaders.for_each_local([&](int peer) {
        if (peer != root) steps.push_back({.slice = slice, .to = peer, .round = here});
      });
    } else if (rank == root) {
      steps.push_back({.slice = slice, .to = mine, .round = here - 1});
    } else {
      steps.push_back({.slice = slice, .from = mine, .keep = true, .round = here + 1});
    }
  }
  sort_steps(steps, first);
  return schedule;
}

Schedule two_level_barrier(int rank, int size, const Hosts& hosts) {
  if (hosts.count() == 1) return two_shot_barrier(rank, size);
  const Leaders leaders(rank, hosts.on(0).front(), hosts);
  Schedule schedule{.slices = 1, .rounds = number(leaders.height() + 2), .steps = {}};
  auto& steps = schedule.steps;
  const std::uint32_t token = schedule.slices;
  const std::uint32_t done = number(leaders.height()) + 1;
  leaders.append_local_up(steps, token);
  leaders.append_dissemination(steps, token, 1);
  leaders.append_local_down(steps, token, done);
  return schedule;
}

}  // namespace rondo::schedules
