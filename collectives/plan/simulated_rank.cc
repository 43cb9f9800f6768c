// SPDX-License-Identifier: Apache-2.0
#include "collectives/plan/simulated_rank.h"

#include <algorithm>

namespace rondo::plan {

const schedules::FrameTable& FrameTables::find(std::span<const std::uint32_t> frame_rounds) {
  key_.assign(frame_rounds.begin(), frame_rounds.end());
  const auto found = tables_.find(key_);
  if (found != tables_.end()) return found->second;
  return tables_.emplace(key_, schedules::FrameTable(frame_rounds, rounds_, depth_)).first->second;
}

SimulatedRank::SimulatedRank(const schedules::Schedule& schedule, std::uint32_t depth,
                             std::uint64_t segments, FrameTables& tables)
    : slices_(schedule.slices),
      segments_(segments),
      window_(std::min<std::uint64_t>(schedules::segment_window(depth), segments)) {
  add_peers(schedule);
  steps_.reserve(schedule.steps.size());
  chain_start_.assign(slices_ + 2, 0);
  for (const schedules::Step& s : schedule.steps) ++chain_start_[s.slice + 1];
  for (std::uint32_t slice = 0; slice <= slices_; ++slice)
    chain_start_[slice + 1] += chain_start_[slice];
  chains_.resize(schedule.steps.size());
  std::vector<std::uint32_t> length(slices_ + 1, 0);
  std::vector<bool> written(slices_ + 1, false);
  std::uint32_t fence = 0;
  const auto index = [&](int rank) {
    return rank == schedules::no_rank ? -1 : static_cast<std::int32_t>(find_peer(rank));
  };
  for (const schedules::Step& s : schedule.steps) {
    const auto number = static_cast<std::uint32_t>(steps_.size());
    const bool token = s.slice == slices_;
    steps_.push_back({s.slice, length[s.slice], token ? number : fence, index(s.from), index(s.to),
                      s.reduce, s.keep, written[s.slice]});
    if (token) fence = number + 1;
    chains_[chain_start_[s.slice] + length[s.slice]++] = number;
    if (steps_.back().writes()) written[s.slice] = true;
  }
  order_links(schedule, tables);
  states_.assign(window_ * (slices_ + 1), {});
  left_.assign(window_, 0);
}

void SimulatedRank::add_peers(const schedules::Schedule& schedule) {
  std::vector<int> ranks;
  for (const schedules::Step& s : schedule.steps) {
    if (s.from != schedules::no_rank) ranks.push_back(s.from);
    if (s.to != schedules::no_rank) ranks.push_back(s.to);
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  peers_.resize(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) peers_[i].rank = ranks[i];
}

void SimulatedRank::order_links(const schedules::Schedule& schedule, FrameTables& tables) {
  std::vector<std::uint32_t> receives(peers_.size() + 1, 0), sends(peers_.size() + 1, 0);
  for (const SimulatedStep& s : steps_) {
    if (s.from >= 0) ++receives[static_cast<std::size_t>(s.from) + 1];
    if (s.to >= 0) ++sends[static_cast<std::size_t>(s.to) + 1];
  }
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    receives[i + 1] += receives[i];
    sends[i + 1] += sends[i];
  }
  const std::uint32_t received = receives.back();
  std::vector<std::uint32_t> rounds(received + sends.back());
  link_steps_.resize(rounds.size());
  std::vector<std::uint32_t> receive_next = receives, send_next = sends;
  for (std::uint32_t i = 0; i < steps_.size(); ++i) {
    const auto put = [&](std::uint32_t place, std::uint32_t later) {
      link_steps_[place] = i;
      rounds[place] = schedule.steps[i].round + later;
    };
    if (steps_[i].from >= 0) put(receive_next[static_cast<std::size_t>(steps_[i].from)]++, 0);
    if (steps_[i].to >= 0) put(received + send_next[static_cast<std::size_t>(steps_[i].to)]++, 1);
  }
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    SimulatedPeer& p = peers_[i];
    p.first_receive = receives[i];
    p.first_send = received + sends[i];
    const auto part = [&](std::uint32_t first, std::uint32_t count) {
      return std::span<const std::uint32_t>(rounds).subspan(first, count);
    };
    p.receives = schedules::FrameOrder(
        tables.find(part(p.first_receive, receives[i + 1] - receives[i])), segments_);
    p.sends =
        schedules::FrameOrder(tables.find(part(p.first_send, sends[i + 1] - sends[i])), segments_);
  }
}

std::int64_t SimulatedRank::find_peer(int rank) const noexcept {
  const auto found =
      std::lower_bound(peers_.begin(), peers_.end(), rank,
                       [](const SimulatedPeer& p, int wanted) { return p.rank < wanted; });
  return found == peers_.end() || found->rank != rank ? -1 : found - peers_.begin();
}

std::size_t SimulatedRank::memory() const noexcept {
  const auto bytes = [](const auto& vector) { return vector.capacity() * sizeof vector[0]; };
  return sizeof *this + bytes(steps_) + bytes(chains_) + bytes(chain_start_) + bytes(link_steps_) +
         bytes(peers_) + bytes(states_) + bytes(left_);
}

void SimulatedRank::open_segment(std::uint64_t segment) {
  left_[segment % window_] = static_cast<std::uint32_t>(steps_.size());
  for (std::uint32_t slice = 0; slice <= slices_; ++slice) state(segment, slice) = {};
}

void SimulatedRank::begin(std::vector<Candidate>& found) {
  begun_ = true;
  if (steps_.empty()) {
    base_ = segments_;
    return;
  }
  // From the newest to the oldest: a segment that is done at once moves the window, which opens
  // others.
  for (std::uint64_t s = 0; s < window_; ++s) open_segment(s);
  for (std::uint64_t s = window_; s-- > 0;)
    for (std::uint32_t slice = 0; slice <= slices_; ++slice) advance(s, slice, found);
  add_all(found);
}

void SimulatedRank::add(const SimulatedStep& step, std::vector<Candidate>& found) const {
  if (step.from >= 0)
    found.push_back({static_cast<std::uint32_t>(step.from), false});
  else if (step.to >= 0)
    found.push_back({static_cast<std::uint32_t>(step.to), true});
}

void SimulatedRank::add_all(std::vector<Candidate>& found) const {
  for (std::uint32_t p = 0; p < peers_.size(); ++p) {
    found.push_back({p, false});
    found.push_back({p, true});
  }
}

// Goes over steps that need nobody, and names what the slice can do next.
void SimulatedRank::advance(std::uint64_t segment, std::uint32_t slice,
                            std::vector<Candidate>& found) {
  const auto steps = chain(slice);
  std::uint32_t finished = 0;
  SliceState& slice_state = state(segment, slice);
  while (slice_state.next < steps.size()) {
    const SimulatedStep& next = steps_[steps[slice_state.next]];
    if (!next.local()) {
      add(next, found);
      break;
    }
    ++slice_state.next;
    if (next.to < 0) {
      ++finished;
    } else {
      ++slice_state.sends_pending;
      found.push_back({static_cast<std::uint32_t>(next.to), true});
    }
  }
  while (finished-- > 0) finish_step(segment, found);
}

SimulatedPlace SimulatedRank::next_receive(std::uint32_t peer) const noexcept {
  const SimulatedPeer& p = peers_[peer];
  return {p.receives.segment(), link_steps_[p.first_receive + p.receives.frame()]};
}

bool SimulatedRank::can_receive(std::uint32_t peer) const noexcept {
  if (peers_[peer].receives.done()) return false;
  const SimulatedPlace place = next_receive(peer);
  if (!open(place)) return false;
  const SimulatedStep& s = step(place);
  const SliceState& slice = state(place.segment, s.slice);
  return slice.next == s.chain && !fenced(place) &&
         !(s.slice < slices_ && s.written && slice.sends_pending != 0);
}

void SimulatedRank::received(std::uint32_t peer, std::vector<Candidate>& found) {
  const SimulatedPlace place = next_receive(peer);
  const SimulatedStep& s = step(place);
  peers_[peer].receives.advance();
  SliceState& slice = state(place.segment, s.slice);
  ++slice.next;
  if (s.to >= 0) {
    ++slice.sends_pending;
    found.push_back({static_cast<std::uint32_t>(s.to), true});
  }
  found.push_back({peer, false});
  advance(place.segment, s.slice, found);
  if (s.to < 0) finish_step(place.segment, found);
}

bool SimulatedRank::can_send(std::uint32_t peer) const noexcept {
  const SimulatedPeer& p = peers_[peer];
  if (p.sends.done()) return false;
  const SimulatedPlace place{p.sends.segment(), link_steps_[p.first_send + p.sends.frame()]};
  if (!open(place)) return false;
  const SimulatedStep& s = step(place);
  const std::uint32_t next = state(place.segment, s.slice).next;
  return s.writes() ? next > s.chain : next == s.chain && !fenced(place);
}

SimulatedPlace SimulatedRank::send_started(std::uint32_t peer, std::vector<Candidate>& found) {
  SimulatedPeer& p = peers_[peer];
  const SimulatedPlace place{p.sends.segment(), link_steps_[p.first_send + p.sends.frame()]};
  const SimulatedStep& s = step(place);
  p.sends.advance();
  if (!s.writes()) {
    SliceState& slice = state(place.segment, s.slice);
    ++slice.sends_pending;
    ++slice.next;
    advance(place.segment, s.slice, found);
  }
  return place;
}

void SimulatedRank::sent(const SimulatedPlace& place, std::vector<Candidate>& found) {
  const SimulatedStep& s = step(place);
  SliceState& slice = state(place.segment, s.slice);
  --slice.sends_pending;
  const auto steps = chain(s.slice);
  if (slice.sends_pending == 0 && slice.next < steps.size()) add(steps_[steps[slice.next]], found);
  finish_step(place.segment, found);
}

void SimulatedRank::finish_step(std::uint64_t segment, std::vector<Candidate>& found) {
  const std::uint32_t left = --left_[segment % window_];
  const std::size_t finished = steps_.size() - left;
  if (left != 0) {
    const auto token = [&](std::size_t i) { return steps_[i].slice == slices_; };
    if (token(finished)) add(steps_[finished], found);
    if (finished > 0 && token(finished - 1))
      for (std::size_t i = finished; i < steps_.size() && !token(i); ++i) add(steps_[i], found);
    return;
  }
  while (base_ < segments_ && left_[base_ % window_] == 0) {
    ++base_;
    if (base_ + window_ > segments_) continue;
    const std::uint64_t opened = base_ + window_ - 1;
    open_segment(opened);
    add_all(found);
    for (std::uint32_t slice = 0; slice <= slices_; ++slice) advance(opened, slice, found);
  }
}

}  // namespace rondo::plan
