// SPDX-License-Identifier: Apache-2.0
//
// One operation on one simulated rank: Progress without bytes, small enough for a hundred thousand
// ranks. After each change it says which links may be able to do more.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/schedules/progress.h"

namespace rondo::plan {

struct SimulatedPeer {
  std::uint32_t reverse = 0;  // this rank's index among the peers of that peer
  std::uint32_t by_rank = 0;  // a sorted list: entry i is the peer with the i-th lowest rank
  std::uint32_t waiting = 0;  // frames that have arrived and have not been taken
  bool taking = false;        // the rank handles a frame from this peer
};

// A link that may be able to do more after a change.
struct Candidate {
  std::uint32_t peer = 0;
  bool send = false;
};

// Thread-bound. The program must outlive it. received() requires can_receive(), and send_started()
// requires can_send().
class SimulatedRank {
 public:
  SimulatedRank(const schedules::Program& program, std::uint64_t segments);

  const schedules::Program& program() const noexcept { return progress_.program(); }
  std::uint32_t peers() const noexcept { return static_cast<std::uint32_t>(peers_.size()); }
  SimulatedPeer& peer(std::uint32_t index) noexcept { return peers_[index]; }
  const SimulatedPeer& peer(std::uint32_t index) const noexcept { return peers_[index]; }
  int rank_of(std::uint32_t peer) const noexcept { return program().peers()[peer].rank; }
  // The peer's index, or -1.
  std::int64_t find_peer(int rank) const noexcept;
  const schedules::ProgramStep& step(const schedules::FramePlace& place) const noexcept {
    return progress_.step(place);
  }
  bool done() const noexcept { return progress_.complete(); }
  // Bytes of this object and its arrays, without the program.
  std::size_t memory() const noexcept;

  // The rank calls the operation; frames may arrive earlier. Here and below, links that may be able
  // to do more are appended to `found`.
  void begin(std::vector<Candidate>& found);
  bool can_receive(std::uint32_t peer) const noexcept;
  schedules::FramePlace next_receive(std::uint32_t peer) const noexcept {
    return progress_.next_receive(static_cast<int>(peer));
  }
  void received(std::uint32_t peer, std::vector<Candidate>& found);
  bool can_send(std::uint32_t peer) const noexcept;
  schedules::FramePlace send_started(std::uint32_t peer, std::vector<Candidate>& found);
  void sent(const schedules::FramePlace& place, std::vector<Candidate>& found);

 private:
  // How far a segment was before a change.
  struct Before {
    std::uint64_t base = 0;
    std::uint32_t reached = 0, steps_done = 0;
  };

  Before before(const schedules::FramePlace& place) const noexcept;
  void find_changes(const schedules::FramePlace& place, const Before& before,
                    std::vector<Candidate>& found) const;
  void find_fenced(std::uint64_t segment, std::uint32_t steps_done,
                   std::vector<Candidate>& found) const;
  void add(const schedules::ProgramStep& step, std::vector<Candidate>& found) const;
  void add_all(std::vector<Candidate>& found) const;

  schedules::Progress progress_;
  std::vector<SimulatedPeer> peers_;
  bool begun_ = false;
};

}  // namespace rondo::plan
