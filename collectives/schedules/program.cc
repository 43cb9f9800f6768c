// SPDX-License-Identifier: Apache-2.0
#include "collectives/schedules/program.h"

#include "collectives/schedules/call.h"

namespace rondo::schedules {

Program::Program(Collective operation, Algorithm algorithm, int root, int rank, int size,
                 std::uint32_t depth, const Hosts& hosts)
    : operation_(operation),
      algorithm_(algorithm),
      root_(root),
      depth_(depth),
      index_(static_cast<std::size_t>(size), -1) {
  const Schedule schedule = make_schedule(algorithm, operation, rank, size, root, hosts);
  slices_ = schedule.slices;
  chains_.resize(slices_ + 1);
  std::vector<bool> written(slices_ + 1, false);
  std::uint32_t fence = 0;
  for (const Step& step : schedule.steps) {
    const auto number = static_cast<std::uint32_t>(steps_.size());
    auto& chain = chains_[step.slice];
    steps_.push_back({step.slice, static_cast<std::uint32_t>(chain.size()),
                      step.slice == slices_ ? number : fence, step.round, step.from, step.to,
                      step.reduce, step.keep, written[step.slice], false});
    if (step.slice == slices_) fence = number + 1;
    chain.push_back(number);
    if (steps_.back().writes()) written[step.slice] = true;
    if (step.from != no_rank) peer(step.from).receives.push_back(number);
    if (step.to != no_rank) peer(step.to).sends.push_back(number);
  }
  order_links(schedule.rounds);
  if (is_reducing(operation)) find_inputs(rank, size, hosts);
}

// Reads the schedules of the peers from which this rank receives: both ends list the frames of a
// link in one order.
void Program::find_inputs(int rank, int size, const Hosts& hosts) {
  std::vector<bool> written(slices_ + 1);
  for (const ProgramPeer& p : peers_) {
    if (p.receives.empty()) continue;
    const Schedule theirs = make_schedule(algorithm_, operation_, p.rank, size, root_, hosts);
    written.assign(slices_ + 1, false);
    std::size_t frame = 0;
    for (const Step& step : theirs.steps) {
      if (step.from != no_rank || step.keep) written[step.slice] = true;
      if (step.to != rank || frame == p.receives.size()) continue;
      ProgramStep& mine = steps_[p.receives[frame++]];
      mine.input = mine.reduce && !written[step.slice];
    }
  }
}

void Program::order_links(std::uint32_t rounds) {
  std::vector<std::uint32_t> frame_rounds;
  const auto table = [&](const std::vector<std::uint32_t>& steps, std::uint32_t later) {
    frame_rounds.clear();
    for (const std::uint32_t step : steps) frame_rounds.push_back(steps_[step].round + later);
    return FrameTable(frame_rounds, rounds, depth_);
  };
  for (ProgramPeer& p : peers_) {
    p.receive_table = table(p.receives, 0);
    p.send_table = table(p.sends, 1);
  }
}

ProgramPeer& Program::peer(int rank) {
  int& index = index_[static_cast<std::size_t>(rank)];
  if (index < 0) {
    index = static_cast<int>(peers_.size());
    peers_.push_back({rank, {}, {}, {}, {}});
  }
  return peers_[static_cast<std::size_t>(index)];
}

}  // namespace rondo::schedules
