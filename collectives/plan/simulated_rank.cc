// SPDX-License-Identifier: Apache-2.0
#include "collectives/plan/simulated_rank.h"

#include <algorithm>
#include <numeric>

namespace rondo::plan {

namespace {

// A simulated rank has no bytes to keep.
constexpr auto keep = [](std::uint64_t, std::uint32_t) noexcept {};

}  // namespace

SimulatedRank::SimulatedRank(const schedules::Program& program, std::uint64_t segments)
    : peers_(program.peers().size()) {
  schedules::Progress::Room room;
  progress_.begin(program, segments, room);
  std::vector<std::uint32_t> order(peers_.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return rank_of(a) < rank_of(b); });
  for (std::size_t i = 0; i < order.size(); ++i) peers_[i].by_rank = order[i];
}

std::int64_t SimulatedRank::find_peer(int rank) const noexcept {
  const auto found = std::lower_bound(
      peers_.begin(), peers_.end(), rank,
      [this](const SimulatedPeer& p, int wanted) { return rank_of(p.by_rank) < wanted; });
  return found == peers_.end() || rank_of(found->by_rank) != rank ? -1 : found->by_rank;
}

std::size_t SimulatedRank::memory() const noexcept {
  return sizeof *this - sizeof progress_ + progress_.memory() +
         peers_.capacity() * sizeof(SimulatedPeer);
}

void SimulatedRank::begin(std::vector<Candidate>& found) {
  begun_ = true;
  progress_.open(keep);
  add_all(found);
}

void SimulatedRank::add(const schedules::ProgramStep& step, std::vector<Candidate>& found) const {
  if (step.receives())
    found.push_back({static_cast<std::uint32_t>(step.from), false});
  else if (step.sends())
    found.push_back({static_cast<std::uint32_t>(step.to), true});
}

void SimulatedRank::add_all(std::vector<Candidate>& found) const {
  for (std::uint32_t p = 0; p < peers(); ++p) {
    found.push_back({p, false});
    found.push_back({p, true});
  }
}

SimulatedRank::Before SimulatedRank::before(const schedules::FramePlace& place) const noexcept {
  return {progress_.base(), progress_.reached(place.segment, step(place).slice),
          progress_.steps_done(place.segment)};
}

// Finds what the frame's slice can do next and what waited for a fence; if the window has moved,
// all links.
void SimulatedRank::find_changes(const schedules::FramePlace& place, const Before& before,
                                 std::vector<Candidate>& found) const {
  if (place.segment >= progress_.base()) {
    const std::uint32_t slice = step(place).slice;
    const std::uint32_t reached = progress_.reached(place.segment, slice);
    const auto chain = program().chain(slice);
    const auto& steps = program().steps();
    for (std::uint32_t i = before.reached; i < reached; ++i)
      if (const schedules::ProgramStep& passed = steps[chain[i]]; passed.sends())
        found.push_back({static_cast<std::uint32_t>(passed.to), true});
    if (reached < chain.size()) add(steps[chain[reached]], found);
    find_fenced(place.segment, before.steps_done, found);
  }
  if (progress_.base() != before.base) add_all(found);
}

void SimulatedRank::find_fenced(std::uint64_t segment, std::uint32_t steps_done,
                                std::vector<Candidate>& found) const {
  const auto& steps = program().steps();
  const auto token = [&](std::size_t i) { return steps[i].slice == program().slices(); };
  for (std::uint32_t done = steps_done + 1; done <= progress_.steps_done(segment); ++done) {
    if (done < steps.size() && token(done)) add(steps[done], found);
    if (!token(done - 1)) continue;
    for (std::size_t i = done; i < steps.size() && !token(i); ++i) add(steps[i], found);
  }
}

// Overwrites::value, because no simulated operation is in place.
bool SimulatedRank::can_receive(std::uint32_t peer) const noexcept {
  const int index = static_cast<int>(peer);
  return begun_ && !progress_.peer(index).receives.done() &&
         progress_.may_receive(progress_.next_receive(index), schedules::Overwrites::value);
}

void SimulatedRank::received(std::uint32_t peer, std::vector<Candidate>& found) {
  const schedules::FramePlace place = next_receive(peer);
  const Before earlier = before(place);
  progress_.received(static_cast<int>(peer), keep);
  found.push_back({peer, false});
  find_changes(place, earlier, found);
}

bool SimulatedRank::can_send(std::uint32_t peer) const noexcept {
  const int index = static_cast<int>(peer);
  return begun_ && !progress_.peer(index).sends.done() &&
         progress_.may_send(progress_.next_send(index));
}

schedules::FramePlace SimulatedRank::send_started(std::uint32_t peer,
                                                  std::vector<Candidate>& found) {
  const schedules::FramePlace place = progress_.next_send(static_cast<int>(peer));
  const Before earlier = before(place);
  progress_.send_started(static_cast<int>(peer), keep);
  if (!step(place).writes()) find_changes(place, earlier, found);
  return place;
}

void SimulatedRank::sent(const schedules::FramePlace& place, std::vector<Candidate>& found) {
  const Before earlier = before(place);
  progress_.payload_released(place);
  progress_.send_finished(place, keep);
  find_changes(place, earlier, found);
}

}  // namespace rondo::plan
