// SPDX-License-Identifier: Apache-2.0
#include "collectives/program.h"

#include <algorithm>

#include "collectives/order.h"

namespace rondo {

Program::Program(Collective operation, Algorithm algorithm, int root, int rank, int size)
    : operation_(operation), algorithm_(algorithm), root_(root), index_(static_cast<std::size_t>(size), -1) {
  const Schedule schedule = make_schedule(algorithm, operation, rank, size, root);
  slices_ = schedule.slices;
  chains_.resize(slices_ + 1);
  std::vector<bool> written(slices_ + 1, false);
  for (const Step& step : schedule.steps) {
    const auto number = static_cast<std::uint32_t>(steps_.size());
    auto& chain = chains_[step.slice];
    steps_.push_back({step.slice, static_cast<std::uint32_t>(chain.size()), step.from, step.to, step.reduce,
                      step.keep, written[step.slice]});
    chain.push_back(number);
    if (steps_.back().writes()) written[step.slice] = true;
    if (step.from != no_rank) peer(step.from).receives.push_back(number);
    if (step.to != no_rank) peer(step.to).sends.push_back(number);
  }
}

std::uint64_t Program::window(std::uint32_t depth) const noexcept {
  std::uint64_t widest = 1;
  for (const ProgramPeer& p : peers_) {
    widest = std::max(widest, FrameOrder::window(static_cast<std::uint32_t>(p.receives.size()), depth));
    widest = std::max(widest, FrameOrder::window(static_cast<std::uint32_t>(p.sends.size()), depth));
  }
  return widest;
}

ProgramPeer& Program::peer(int rank) {
  int& index = index_[static_cast<std::size_t>(rank)];
  if (index < 0) {
    index = static_cast<int>(peers_.size());
    peers_.push_back({rank, {}, {}});
  }
  return peers_[static_cast<std::size_t>(index)];
}

}  // namespace rondo
