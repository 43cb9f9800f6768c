// SPDX-License-Identifier: Apache-2.0
//
// Ranks of a host exchange directly, and between hosts each rank has rails of its own. So the bytes
// that cross the network do not depend on the number of ranks on a host. There are as many rails as
// ranks on the fullest host. An all-reduce deals the R rails to the L ranks of a host in order:
// rail r belongs to local rank r * L / R. With blocks rail r belongs to local rank r % L, so that
// each rank has the rail of its own block. Between hosts the slices of a rail go round as in a
// ring. Hop t of that ring travels in round t + 1. The host's sum that it needs is made in round
// max(1, t): a sum that is needed late is sent late.
#include <algorithm>

#include "collectives/schedules/schedules.h"

namespace rondo::schedules {

namespace {

// Hosts and rails as one rank sees them.
class Place {
 public:
  // How rails are dealt to the ranks of a host.
  enum class Deal { in_order, by_block };

  Place(int rank, const Hosts& hosts, Deal deal)
      : hosts_(hosts), rank_(rank), host_(hosts.host(rank)), deal_(deal) {}

  int hosts() const { return hosts_.count(); }
  int rails() const { return hosts_.most_on_a_host(); }
  // The host that is `hops` places before this one in the ring.
  int before(int hops) const { return wrap(host_ - hops, hosts()); }
  int owner(int host, int rail) const {
    const auto on = hosts_.on(host);
    const int ranks = static_cast<int>(on.size());
    return on[static_cast<std::size_t>(deal_ == Deal::in_order ? rail * ranks / rails()
                                                               : rail % ranks)];
  }
  int owner(int rail) const { return owner(host_, rail); }
  int next(int rail) const { return owner(before(-1), rail); }
  int previous(int rail) const { return owner(before(1), rail); }
  // Calls function(peer) for the other ranks of this host, the one above first.
  template <class Function>
  void for_each_local(Function function) const {
    const auto on = hosts_.on(host_);
    const auto local = static_cast<std::size_t>(hosts_.local(rank_));
    for (std::size_t d = 1; d < on.size(); ++d) function(on[(local + d) % on.size()]);
  }

 private:
  const Hosts& hosts_;
  int rank_, host_;
  Deal deal_;
};

// Sums the slice of this host's ranks at the owner, in time for hop `hop`: then the owner combines
// the sum with the value from the previous host.
void append_local_sum(std::vector<Step>& steps, std::uint32_t slice, const Place& place, int rank,
                      int owner, int hop) {
  const std::uint32_t round = number(std::max(1, hop));
  if (rank != owner) {
    steps.push_back({.slice = slice, .to = owner, .round = round - 1});
    return;
  }
  place.for_each_local([&](int peer) {
    steps.push_back({.slice = slice, .from = peer, .reduce = true, .round = round});
  });
}

// Copies the value that the owner has since `round` to the other ranks of the host, in the round
// after.
void append_local_copies(std::vector<Step>& steps, std::uint32_t slice, const Place& place,
                         int rank, int owner, std::uint32_t round) {
  if (rank != owner) {
    steps.push_back({.slice = slice, .from = owner, .keep = true, .round = round + 1});
    return;
  }
  place.for_each_local(
      [&](int peer) { steps.push_back({.slice = slice, .to = peer, .round = round}); });
}

// Both ends of a link must list its frames in the same order: sorted by round. Within a round both
// list them in ascending order already. Between two hosts a round carries only one part's slices,
// or only one host's blocks.
void sort_steps(std::vector<Step>& steps) {
  std::stable_sort(steps.begin(), steps.end(),
                   [](const Step& a, const Step& b) { return a.round < b.round; });
}

}  // namespace

// Slices: each rail has one part for each host.
Schedule two_level_all_reduce(int rank, int size, const Hosts& hosts) {
  if (hosts.count() == 1) return two_shot_all_reduce(rank, size);
  const Place place(rank, hosts, Place::Deal::in_order);
  const int ring = place.hosts(), last = ring - 1;
  Schedule schedule{
      .slices = number(place.rails() * ring), .rounds = number(2 * ring), .steps = {}};
  auto& steps = schedule.steps;
  for (int rail = 0; rail < place.rails(); ++rail)
    for (int hop = 0; hop < ring; ++hop) {  // part p of a rail starts at host p
      const std::uint32_t slice = number(rail * ring + place.before(hop));
      const int owner = place.owner(rail), next = place.next(rail), previous = place.previous(rail);
      const int back = hop == last ? hop : ring + hop;
      append_local_sum(steps, slice, place, rank, owner, hop);
      if (rank == owner) {
        if (hop == 0)
          steps.push_back({.slice = slice, .to = next, .round = 1});
        else
          steps.push_back({.slice = slice,
                           .from = previous,
                           .to = next,
                           .reduce = true,
                           .keep = hop == last,
                           .round = number(hop + 1)});
        if (hop != last)
          steps.push_back({.slice = slice,
                           .from = previous,
                           .to = hop == last - 1 ? no_rank : next,
                           .keep = true,
                           .round = number(back + 1)});
      }
      append_local_copies(steps, slice, place, rank, owner, number(back + 1));
    }
  sort_steps(steps);
  return schedule;
}

// A rank's block travels on the rail with that rank's local number and reaches the rank's host
// last.
Schedule two_level_reduce_scatter(int rank, int size, const Hosts& hosts) {
  if (hosts.count() == 1) return two_shot_reduce_scatter(rank, size);
  const Place place(rank, hosts, Place::Deal::by_block);
  const int last = place.hosts() - 1;
  Schedule schedule{.slices = number(size), .rounds = number(last + 1), .steps = {}};
  auto& steps = schedule.steps;
  for (int hop = 0; hop <= last; ++hop)
    for (const int block : hosts.on(place.before(hop + 1))) {
      const int rail = hosts.local(block), owner = place.owner(rail);
      append_local_sum(steps, number(block), place, rank, owner, hop);
      if (rank != owner) continue;
      const int next = hop == last ? no_rank : place.next(rail);
      if (hop == 0)
        steps.push_back({.slice = number(block), .to = next, .round = 1});
      else
        steps.push_back({.slice = number(block),
                         .from = place.previous(rail),
                         .to = next,
                         .reduce = true,
                         .keep = hop == last,
                         .round = number(hop + 1)});
    }
  sort_steps(steps);
  return schedule;
}

Schedule two_level_all_gather(int rank, int size, const Hosts& hosts) {
  if (hosts.count() == 1) return two_shot_all_gather(rank, size);
  const Place place(rank, hosts, Place::Deal::by_block);
  const int last = place.hosts() - 1;
  Schedule schedule{.slices = number(size), .rounds = number(last + 1), .steps = {}};
  auto& steps = schedule.steps;
  for (int hop = 0; hop <= last; ++hop)
    for (const int block : hosts.on(place.before(hop))) {
      const int rail = hosts.local(block), owner = place.owner(rail);
      if (rank == owner) {
        if (hop == 0) steps.push_back({.slice = number(block), .keep = true});
        steps.push_back({.slice = number(block),
                         .from = hop == 0 ? no_rank : place.previous(rail),
                         .to = hop == last ? no_rank : place.next(rail),
                         .keep = hop > 0,
                         .round = number(hop)});
      }
      append_local_copies(steps, number(block), place, rank, owner, number(hop));
    }
  sort_steps(steps);
  return schedule;
}

// No step has one end inside the host and the other outside. A last receive that sums and sends
// nothing on is at the end of the chain of hosts: only in a reduce is its value not final there.
Schedule between_hosts(const Schedule& schedule, int rank, const Hosts& hosts) {
  Schedule between = schedule;
  std::erase_if(between.steps, [&](const Step& step) {
    const int peer = step.from != no_rank ? step.from : step.to;
    return peer == no_rank || hosts.host(peer) == hosts.host(rank);
  });
  std::vector<bool> goes_on(schedule.slices + 1, false);
  for (auto step = between.steps.rbegin(); step != between.steps.rend(); ++step) {
    if (step->reduce && step->to == no_rank && !goes_on[step->slice]) step->keep = true;
    goes_on[step->slice] = true;
  }
  return between;
}

std::vector<Row> rows_inside(Collective operation, int host, const Hosts& hosts) {
  const Collective plain = without_counts(operation);
  const int ranks = static_cast<int>(hosts.on(host).size());
  std::vector<Row> rows;
  if (plain == Collective::all_reduce || plain == Collective::reduce ||
      plain == Collective::broadcast) {
    // Rail r belongs to local rank r * ranks / rails, rounded down.
    const int rails = hosts.most_on_a_host();
    const int slices_of_rail = plain == Collective::all_reduce ? hosts.count() : 1;
    const auto first_slice = [&](int local) {
      return number((local * rails + ranks - 1) / ranks * slices_of_rail);
    };
    Row& row = rows.emplace_back();
    for (int local = 0; local < ranks; ++local)
      row.push_back({first_slice(local), first_slice(local + 1)});
  }
  if (plain != Collective::reduce_scatter && plain != Collective::all_gather) return rows;
  for (int hop = 0; hop < hosts.count(); ++hop) {
    const int back = plain == Collective::reduce_scatter ? hop + 1 : hop;
    const auto blocks = hosts.on(wrap(host - back, hosts.count()));
    for (std::size_t rail = 0; rail < blocks.size(); ++rail) {
      const std::size_t local = rail % static_cast<std::size_t>(ranks);
      if (local == 0) rows.emplace_back(ranks);
      rows.back()[local] = {number(blocks[rail]), number(blocks[rail]) + 1};
    }
  }
  return rows;
}

}  // namespace rondo::schedules
