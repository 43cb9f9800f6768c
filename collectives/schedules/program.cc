// SPDX-License-Identifier: Apache-2.0
#include "collectives/schedules/program.h"

#include <algorithm>
#include <utility>

#include "collectives/schedules/call.h"
#include "collectives/schedules/schedules.h"

namespace rondo::schedules {

Program::Program(Collective operation, Algorithm algorithm, int root, int rank, int size,
                 std::uint32_t depth, const Hosts& hosts, Inside inside)
    : operation_(operation),
      algorithm_(algorithm),
      root_(root),
      depth_(depth),
      inside_(inside),
      index_(static_cast<std::size_t>(size), no_peer) {
  Schedule schedule = make_schedule(algorithm, operation, rank, size, root, hosts);
  if (inside == Inside::memory) schedule = between_hosts(schedule, rank, hosts);
  tables_ = std::make_unique<FrameTables>(schedule.rounds, depth);
  build(schedule, *tables_);
  if (inside == Inside::memory && !base::traits_of(operation).gathers()) {
    for (ProgramStep& step : steps_) step.written = true;
    for (ProgramPeer& peer : peers_) peer.tells = false;  // what the host does comes first
  }
  tellers_ = static_cast<std::uint32_t>(std::ranges::count(peers_, true, &ProgramPeer::tells));
  for (std::size_t i = 0; i < peers_.size(); ++i)
    index_[static_cast<std::size_t>(peers_[i].rank)] = static_cast<int>(i);
  if (is_reducing(operation)) find_inputs(rank, size, hosts);
}

Program::Program(const Schedule& schedule, std::uint32_t depth, FrameTables& tables)
    : depth_(depth) {
  build(schedule, tables);
}

void Program::build(const Schedule& schedule, FrameTables& tables) {
  slices_ = schedule.slices;
  add_steps(schedule);
  order_slices();
  order_links(schedule, tables);
}

// Peers get their indices in the order in which the schedule names them. A sorted list finds them:
// a table of all ranks would cost memory on each of them.
void Program::add_steps(const Schedule& schedule) {
  std::vector<std::pair<int, std::size_t>> named;  // rank, and where it is named first
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    if (step.from != no_rank) named.emplace_back(step.from, 2 * i);
    if (step.to != no_rank) named.emplace_back(step.to, 2 * i + 1);
  }
  std::sort(named.begin(), named.end());
  named.erase(std::unique(named.begin(), named.end(),
                          [](const auto& a, const auto& b) { return a.first == b.first; }),
              named.end());
  std::vector<std::int32_t> index(named.size());
  std::vector<std::size_t> order(named.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return named[a].second < named[b].second; });
  peers_.reserve(named.size());
  for (const std::size_t i : order) {
    index[i] = static_cast<std::int32_t>(peers_.size());
    peers_.push_back({.rank = named[i].first});
  }
  const auto find = [&](int rank) {
    if (rank == no_rank) return no_peer;
    const auto found = std::lower_bound(named.begin(), named.end(), std::pair(rank, std::size_t{}));
    return index[static_cast<std::size_t>(found - named.begin())];
  };
  steps_.reserve(schedule.steps.size());
  for (const Step& step : schedule.steps)
    steps_.push_back({.slice = step.slice,
                      .from = find(step.from),
                      .to = find(step.to),
                      .reduce = step.reduce,
                      .keep = step.keep});
}

void Program::order_slices() {
  chain_start_.assign(slices_ + 2, 0);
  for (const ProgramStep& step : steps_) ++chain_start_[step.slice + 1];
  for (std::uint32_t slice = 0; slice <= slices_; ++slice)
    chain_start_[slice + 1] += chain_start_[slice];
  chains_.resize(steps_.size());
  std::vector<std::uint32_t> length(slices_ + 1, 0);
  std::vector<bool> written(slices_ + 1, false);
  std::uint32_t fence = 0;
  for (std::uint32_t number = 0; number < steps_.size(); ++number) {
    ProgramStep& step = steps_[number];
    const bool token = step.slice == slices_;
    step.chain = length[step.slice]++;
    step.after = token ? number : fence;
    step.written = written[step.slice];
    chains_[chain_start_[step.slice] + step.chain] = number;
    if (token) {
      fence = number + 1;  // a token has no value, so it never counts as written
    } else if (step.writes()) {
      written[step.slice] = true;
    }
  }
}

void Program::order_links(const Schedule& schedule, FrameTables& tables) {
  std::vector<std::uint32_t> receives(peers_.size() + 1, 0), sends(peers_.size() + 1, 0);
  for (const ProgramStep& step : steps_) {
    if (step.receives()) ++receives[static_cast<std::size_t>(step.from) + 1];
    if (step.sends()) ++sends[static_cast<std::size_t>(step.to) + 1];
  }
  for (std::size_t i = 0; i < peers_.size(); ++i) receives[i + 1] += receives[i];
  sends[0] = receives.back();
  for (std::size_t i = 0; i < peers_.size(); ++i) sends[i + 1] += sends[i];
  link_steps_.resize(sends.back());
  std::vector<std::uint32_t> rounds(link_steps_.size());
  std::vector<std::uint32_t> next_receive = receives, next_send = sends;
  for (std::uint32_t i = 0; i < steps_.size(); ++i) {
    const auto put = [&](std::uint32_t place, std::uint32_t round) {
      link_steps_[place] = i;
      rounds[place] = round;
    };
    const std::uint32_t round = schedule.steps[i].round;
    if (steps_[i].receives()) put(next_receive[static_cast<std::size_t>(steps_[i].from)]++, round);
    if (steps_[i].sends()) put(next_send[static_cast<std::size_t>(steps_[i].to)]++, round + 1);
  }
  const auto table = [&](const std::vector<std::uint32_t>& first, std::size_t i) {
    return &tables.find(std::span(rounds).subspan(first[i], first[i + 1] - first[i]));
  };
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    peers_[i].first_receive = receives[i];
    // Nothing is received before the first round.
    peers_[i].tells = receives[i + 1] > receives[i] && rounds[receives[i]] == 1;
    peers_[i].first_send = sends[i];
    peers_[i].receives = table(receives, i);
    peers_[i].sends = table(sends, i);
  }
}

// Finds out which frames carry the sender's input, from the schedules of the senders. Both ends
// list the frames of a link in the same order.
void Program::find_inputs(int rank, int size, const Hosts& hosts) {
  std::vector<bool> written(slices_ + 1);
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    const std::uint32_t frames = peers_[i].receives->frames();
    if (frames == 0) continue;
    const Schedule theirs =
        make_schedule(algorithm_, operation_, peers_[i].rank, size, root_, hosts);
    written.assign(slices_ + 1, false);
    std::uint32_t frame = 0;
    for (const Step& step : theirs.steps) {
      if (step.from != no_rank || step.keep) written[step.slice] = true;
      if (step.to != rank || frame == frames) continue;
      ProgramStep& mine = steps_[receive_step(static_cast<int>(i), frame++)];
      mine.input = mine.reduce && !written[step.slice];
    }
  }
}

std::size_t Program::memory() const noexcept {
  const auto bytes = [](const auto& vector) { return vector.capacity() * sizeof vector[0]; };
  return sizeof *this + bytes(steps_) + bytes(peers_) + bytes(chains_) + bytes(chain_start_) +
         bytes(link_steps_) + bytes(index_);
}

}  // namespace rondo::schedules
