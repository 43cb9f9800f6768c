// SPDX-License-Identifier: Apache-2.0
//
// One operation under way on one simulated rank: what Run is to the engine, without bytes and small
// enough for a hundred thousand.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "collectives/schedules/order.h"
#include "collectives/schedules/schedule.h"

namespace rondo::plan {

// Frame orders by the rounds of their frames: most links of a large group share a few.
class FrameTables {
 public:
  FrameTables(std::uint32_t rounds, std::uint32_t depth) : rounds_(rounds), depth_(depth) {}
  const schedules::FrameTable& find(std::span<const std::uint32_t> frame_rounds);

 private:
  std::uint32_t rounds_, depth_;
  std::map<std::vector<std::uint32_t>, schedules::FrameTable> tables_;
  std::vector<std::uint32_t> key_;
};

struct SimulatedStep {
  std::uint32_t slice = 0;
  std::uint32_t chain = 0;          // position among the steps of the slice
  std::uint32_t after = 0;          // steps of the segment that must be done before
  std::int32_t from = -1, to = -1;  // indices of peers
  bool reduce = false, keep = false, written = false;

  bool local() const noexcept { return from < 0 && keep; }
  bool writes() const noexcept { return from >= 0 || keep; }
};

struct SimulatedPeer {
  int rank = 0;
  std::uint32_t reverse = 0;  // this rank among the peers of that one
  schedules::FrameOrder receives, sends;
  std::uint32_t first_receive = 0, first_send = 0;  // of its steps in list order
  std::uint32_t waiting = 0;                        // frames that are here and have not been taken
  bool taking = false;
};

struct SimulatedPlace {
  std::uint64_t segment = 0;
  std::uint32_t step = 0;
};

// A link that may have become able to do something.
struct Candidate {
  std::uint32_t peer = 0;
  bool send = false;
};

class SimulatedRank {
 public:
  SimulatedRank(const schedules::Schedule& schedule, std::uint32_t depth, std::uint64_t segments,
                FrameTables& tables);

  const std::vector<SimulatedPeer>& peers() const noexcept { return peers_; }
  SimulatedPeer& peer(std::uint32_t index) noexcept { return peers_[index]; }
  // Peers are in order of rank. Index or -1.
  std::int64_t find_peer(int rank) const noexcept;
  std::uint32_t slices() const noexcept { return slices_; }
  const SimulatedStep& step(const SimulatedPlace& place) const noexcept {
    return steps_[place.step];
  }
  std::size_t steps() const noexcept { return steps_.size(); }
  bool done() const noexcept { return base_ == segments_; }
  std::size_t memory() const noexcept;

  // The rules of Run; what may have become possible is appended to `found`.
  void begin(std::vector<Candidate>& found);
  bool can_receive(std::uint32_t peer) const noexcept;
  SimulatedPlace next_receive(std::uint32_t peer) const noexcept;
  void received(std::uint32_t peer, std::vector<Candidate>& found);
  bool can_send(std::uint32_t peer) const noexcept;
  SimulatedPlace send_started(std::uint32_t peer, std::vector<Candidate>& found);
  void sent(const SimulatedPlace& place, std::vector<Candidate>& found);

 private:
  struct SliceState {
    std::uint32_t next = 0, sends_pending = 0;
  };

  void add_peers(const schedules::Schedule& schedule);
  void order_links(const schedules::Schedule& schedule, FrameTables& tables);
  std::span<const std::uint32_t> chain(std::uint32_t slice) const noexcept {
    return std::span(chains_).subspan(chain_start_[slice],
                                      chain_start_[slice + 1] - chain_start_[slice]);
  }
  SliceState& state(std::uint64_t segment, std::uint32_t slice) noexcept {
    return states_[segment % window_ * (slices_ + 1) + slice];
  }
  const SliceState& state(std::uint64_t segment, std::uint32_t slice) const noexcept {
    return states_[segment % window_ * (slices_ + 1) + slice];
  }
  bool open(const SimulatedPlace& place) const noexcept {
    return begun_ && place.segment < base_ + window_;
  }
  bool fenced(const SimulatedPlace& place) const noexcept {
    return steps_.size() - left_[place.segment % window_] < step(place).after;
  }
  void open_segment(std::uint64_t segment);
  void advance(std::uint64_t segment, std::uint32_t slice, std::vector<Candidate>& found);
  void finish_step(std::uint64_t segment, std::vector<Candidate>& found);
  void add(const SimulatedStep& step, std::vector<Candidate>& found) const;
  void add_all(std::vector<Candidate>& found) const;

  std::uint32_t slices_;
  std::uint64_t segments_, window_, base_ = 0;
  bool begun_ = false;  // frames may come before
  std::vector<SimulatedStep> steps_;
  std::vector<std::uint32_t> chains_, chain_start_;
  std::vector<std::uint32_t> link_steps_;  // of all links, receives and sends
  std::vector<SimulatedPeer> peers_;
  std::vector<SliceState> states_;   // window x (slices + token)
  std::vector<std::uint32_t> left_;  // steps, by segment of the window
};

}  // namespace rondo::plan
