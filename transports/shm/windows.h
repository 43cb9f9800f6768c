// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "transports/shm/exports.h"
#include "transports/shm/neighbour.h"
#include "transports/shm/segment.h"
#include "transports/transport.h"

namespace rondo {

// What one peer has allocated, as far as this rank has been told, mapped. What comes from the peer is checked.
class ShmImports {
 public:
  explicit ShmImports(ShmNeighbourState& peer) noexcept : peer_(peer) {}
  // Takes the messages that wait in the socket; notices its end.
  void take_messages();
  std::byte* map(WindowPlace place, std::size_t bytes);

 private:
  struct Slot {
    std::uint32_t generation = 0;
    Mapping mapping;
  };

  const Slot* find(WindowPlace place) const noexcept;
  void learn(Packet packet, std::span<const std::byte> bytes);

  ShmNeighbourState& peer_;
  std::vector<Slot> slots_;
  // The last mappings of memory that the peer has freed: where an operation fails there before it fails here, this rank may still
  // be reading it. The pages are gone, zeros are read.
  std::array<Mapping, 16> retired_;
  std::size_t next_retired_ = 0;
};

class ShmWindows final : public Windows {
 public:
  // peers: in order of ranks; they and `own` outlive the object.
  ShmWindows(int rank, const Segment& own, std::span<const std::unique_ptr<ShmNeighbourState>> peers,
             std::shared_ptr<ShmExports> exports);
  std::span<const int> ranks() const noexcept override { return ranks_; }
  std::byte* area(int rank) const noexcept override;
  WindowPlace find(const void* data, std::size_t bytes) noexcept override {
    return exports_->find(data, bytes);
  }
  std::byte* map(int rank, WindowPlace place, std::size_t bytes) override;
  void notify() noexcept override;
  // Of the peer at this place among the peers.
  ShmImports& imports(std::size_t peer) noexcept { return imports_[peer]; }

 private:
  std::size_t index_of(int rank) const noexcept;

  const int rank_;
  const Segment& own_;
  std::span<const std::unique_ptr<ShmNeighbourState>> peers_;
  std::shared_ptr<ShmExports> exports_;
  std::vector<int> ranks_;
  std::vector<ShmImports> imports_;  // by peer
};

}  // namespace rondo
