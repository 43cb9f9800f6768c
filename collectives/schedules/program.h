// SPDX-License-Identifier: Apache-2.0
//
// A schedule made ready to run: its steps by slice in chain order, and by peer in link order.
// Progress (progress.h) runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/schedules/order.h"
#include "collectives/schedules/schedule.h"

namespace rondo::schedules {

inline constexpr std::int32_t no_peer = -1;

struct ProgramStep {
  std::uint32_t slice = 0;
  std::uint32_t chain = 0;  // position among the steps of the slice
  // How many steps of the segment must be done before it begins: tokens are fences (schedule.h).
  std::uint32_t after = 0;
  std::int32_t from = no_peer, to = no_peer;  // indices into Program::peers()
  bool reduce = false, keep = false;
  // An earlier step of the slice has written its value; otherwise the value is this rank's input.
  bool written = false;
  // A reducing step receives its sender's input; otherwise a sum of several inputs.
  bool input = false;

  bool receives() const noexcept { return from != no_peer; }
  bool sends() const noexcept { return to != no_peer; }
  // Keeps without receiving, so it waits for no frame.
  bool local() const noexcept { return !receives() && keep; }
  bool writes() const noexcept { return receives() || keep; }
};

struct ProgramPeer {
  int rank = 0;
  // The first frame from it tells that it has called: that frame needs nothing that others send.
  bool tells = false;
  // Where its steps start among those of all links.
  std::uint32_t first_receive = 0, first_send = 0;
  // The order in which the frames of the link travel.
  const FrameTable* receives = nullptr;
  const FrameTable* sends = nullptr;
};

// How the ranks of one host do their part of a two-level schedule: over links, or in memory that
// they share (between_hosts() in schedules.h).
enum class Inside : std::uint8_t { links, memory };

// Does not change once made, so any number of threads may read it. Only the constructors allocate
// and throw.
class Program {
 public:
  // For the engine: finds peers by rank, and knows which frames carry inputs. Inside::memory is for
  // two levels on a host with several ranks. Then the program has only the steps between hosts.
  // Where the operation reduces, their first values are not inputs but sums of this host's inputs;
  // in a broadcast they are what the root has given to its host.
  Program(Collective operation, Algorithm algorithm, int root, int rank, int size,
          std::uint32_t depth, const Hosts& hosts = {}, Inside inside = Inside::links);
  // For the checker and the simulator: the steps only, in as little memory as possible. Takes any
  // schedule whose steps name slices up to Schedule::slices. The tables must be made for
  // schedule.rounds and depth, and must outlive it.
  Program(const Schedule& schedule, std::uint32_t depth, FrameTables& tables);
  bool is(Collective operation, Algorithm algorithm, int root, std::uint32_t depth,
          Inside inside) const noexcept {
    return operation == operation_ && algorithm == algorithm_ && root == root_ && depth == depth_ &&
           inside == inside_;
  }

  std::uint32_t slices() const noexcept { return slices_; }
  const std::vector<ProgramStep>& steps() const noexcept { return steps_; }
  // In the order in which the schedule names them.
  const std::vector<ProgramPeer>& peers() const noexcept { return peers_; }
  const ProgramPeer& peer(int index) const noexcept {
    return peers_[static_cast<std::size_t>(index)];
  }
  // Index into peers(), or no_peer for a rank without frames to or from this one. Only for a
  // program that was made for the engine.
  int peer_index(int rank) const noexcept { return index_[static_cast<std::size_t>(rank)]; }
  // How many steps come before the first that has a value.
  std::uint32_t leading_tokens() const noexcept {
    std::uint32_t tokens = 0;
    while (tokens < steps_.size() && steps_[tokens].slice == slices_) ++tokens;
    return tokens;
  }
  // How many peers tell.
  std::uint32_t tellers() const noexcept { return tellers_; }
  // The step that receives or sends this frame of a segment on the link. Frames are counted in list
  // order.
  std::uint32_t receive_step(int peer, std::uint32_t frame) const noexcept {
    return link_steps_[this->peer(peer).first_receive + frame];
  }
  std::uint32_t send_step(int peer, std::uint32_t frame) const noexcept {
    return link_steps_[this->peer(peer).first_send + frame];
  }
  // The steps of a slice (the token included: slice == slices()).
  std::span<const std::uint32_t> chain(std::uint32_t slice) const noexcept {
    return std::span(chains_).subspan(chain_start_[slice],
                                      chain_start_[slice + 1] - chain_start_[slice]);
  }
  // How many segments a rank must hold at once so that every link can follow its order.
  std::uint64_t window() const noexcept { return segment_window(depth_); }
  // Bytes of this object and its arrays; without the frame tables.
  std::size_t memory() const noexcept;

 private:
  void build(const Schedule& schedule, FrameTables& tables);
  void add_steps(const Schedule& schedule);
  void order_slices();
  void order_links(const Schedule& schedule, FrameTables& tables);
  void find_inputs(int rank, int size, const Hosts& hosts);

  Collective operation_ = Collective::barrier;
  Algorithm algorithm_ = Algorithm::direct;
  int root_ = 0;
  std::uint32_t depth_ = 1;
  Inside inside_ = Inside::links;
  std::uint32_t slices_ = 0, tellers_ = 0;
  std::vector<ProgramStep> steps_;
  std::vector<ProgramPeer> peers_;
  std::vector<std::uint32_t> chains_, chain_start_;
  std::vector<std::uint32_t> link_steps_;  // of all links: first all receives, then all sends
  std::vector<int> index_;                 // by rank
  std::unique_ptr<FrameTables> tables_;
};

}  // namespace rondo::schedules
