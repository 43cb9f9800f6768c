// SPDX-License-Identifier: Apache-2.0
//
// A schedule made ready for the engine: steps by peer in link order, and by slice in chain order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/schedules/order.h"
#include "collectives/schedules/schedule.h"

namespace rondo::schedules {

struct ProgramStep {
  std::uint32_t slice = 0;
  std::uint32_t chain = 0;  // position among the steps of the slice
  std::uint32_t after = 0;  // steps of the segment that must be done before: a token is a fence
  std::uint32_t round = 0;
  int from = no_rank, to = no_rank;
  bool reduce = false, keep = false;
  bool written = false;  // an earlier step of the slice has left its value in the accumulator; else
                         // it is the input's

  bool input = false;  // what a reducing step receives is its sender's input; else a sum of several

  bool local() const noexcept { return from == no_rank && keep; }
  bool writes() const noexcept { return from != no_rank || keep; }
};

struct ProgramPeer {
  int rank = 0;
  std::vector<std::uint32_t> receives, sends;  // steps of a segment, in list order
  FrameTable receive_table, send_table;        // the order in which their frames travel
};

class Program {
 public:
  Program(Collective operation, Algorithm algorithm, int root, int rank, int size,
          std::uint32_t depth, const Hosts& hosts = {});
  // Without steps and peers: of operations that need no links.
  explicit Program(int size) : index_(static_cast<std::size_t>(size), -1) {}
  bool is(Collective operation, Algorithm algorithm, int root, std::uint32_t depth) const noexcept {
    return operation == operation_ && algorithm == algorithm_ && root == root_ && depth == depth_;
  }

  std::uint32_t slices() const noexcept { return slices_; }
  const std::vector<ProgramStep>& steps() const noexcept { return steps_; }
  const std::vector<ProgramPeer>& peers() const noexcept { return peers_; }
  // Index into peers(), or -1 for a rank that this one has nothing to do with.
  int peer_index(int rank) const noexcept { return index_[static_cast<std::size_t>(rank)]; }
  // The steps of a slice (the token included: slice == slices()).
  std::span<const std::uint32_t> chain(std::uint32_t slice) const noexcept {
    return chains_[slice];
  }
  // Segments that must be held at once so that the frame order of every link can be followed.
  std::uint64_t window() const noexcept { return segment_window(depth_); }

 private:
  ProgramPeer& peer(int rank);
  void order_links(std::uint32_t rounds);
  void find_inputs(int rank, int size, const Hosts& hosts);

  Collective operation_ = Collective::barrier;
  Algorithm algorithm_ = Algorithm::direct;
  int root_ = 0;
  std::uint32_t depth_ = 1;
  std::uint32_t slices_ = 0;
  std::vector<ProgramStep> steps_;
  std::vector<ProgramPeer> peers_;
  std::vector<int> index_;
  std::vector<std::vector<std::uint32_t>> chains_;
};

}  // namespace rondo::schedules
