// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "transports/host/exports.h"
#include "transports/host/passing.h"
#include "transports/shm/neighbour.h"
#include "transports/shm/segment.h"
#include "transports/transport.h"

namespace rondo::shm {

// Maps the memory that one peer has allocated, by extents (extent.h), as soon as the peer has sent
// its descriptor. Everything from the peer is checked. Thread-bound (the driver of the transport),
// without locks. If an extent cannot be mapped, it logs a warning and tries again every 100 ms;
// meanwhile operations use slots (host::Exports).
class ShmImports {
 public:
  explicit ShmImports(ShmNeighbourState& peer) noexcept : peer_(peer) {}
  // Takes the messages that wait in the socket, and notices its end.
  void take_messages();
  // Maps extents of the peer that this rank has not mapped, once the descriptor is there.
  void catch_up() {
    if (left_over_) take_left_over();
    if ((peer_.theirs.head().extents.load(std::memory_order_acquire) & ~mapped_) != 0 &&
        (peer_.other.extents.load(std::memory_order_acquire) & host::descriptor_sent) != 0)
      map_more();
  }
  std::byte* map(transports::WindowPlace place, std::size_t bytes) const noexcept;
  // Takes what the peer passes. Null: nobody does.
  void set_sink(host::DescriptorSink* sink) noexcept { sink_ = sink; }

 private:
  void learn(host::Packet packet, std::span<const std::byte> bytes);
  void map_more();
  void take_left_over();
  void complain(std::string_view why);

  ShmNeighbourState& peer_;
  base::FileDescriptor memory_;
  std::array<base::Mapping, host::Extent::count> extents_;
  std::uint32_t mapped_ = 0;  // mask
  base::TimePoint next_try_{};
  bool left_over_ = false;  // a message is in the socket, because descriptors were short
  base::QuotaLog log_;
  host::DescriptorSink* sink_ = nullptr;
};

// The windows of the shm transport: areas in the segments, and allocated memory. Thread-bound (the
// driver of the transport). It takes no lock of its own; find() may take that of host::Exports.
class ShmWindows final : public transports::Windows, public host::DescriptorPassing {
 public:
  // peers: in order of ranks; they and `own` outlive the object.
  ShmWindows(int rank, const Segment& own,
             std::span<const std::unique_ptr<ShmNeighbourState>> peers,
             std::shared_ptr<host::Exports> exports);
  std::byte* area(int rank) const noexcept override;
  transports::WindowPlace find(const void* data, std::size_t bytes) noexcept override {
    catch_up();
    return exports_->find(data, bytes);
  }
  // Maps what the peers have allocated since.
  void catch_up() {
    for (ShmImports& one : imports_) one.catch_up();
  }
  std::byte* map(int rank, transports::WindowPlace place, std::size_t bytes) override;
  void await(std::uint64_t ranks) noexcept override;
  void notify() noexcept override;
  int pass_descriptor(int rank, std::span<const std::byte> message, int descriptor) override;
  bool has_died(int rank) const noexcept override;
  void set_sink(host::DescriptorSink* sink) noexcept override;
  void halt() noexcept {
    if (sink_ != nullptr) sink_->halted();
  }
  // The imports of the peer with this index.
  ShmImports& imports(std::size_t peer) noexcept { return imports_[peer]; }

 private:
  std::size_t index_of(int rank) const noexcept;

  const int rank_;
  const Segment& own_;
  std::span<const std::unique_ptr<ShmNeighbourState>> peers_;
  std::shared_ptr<host::Exports> exports_;
  const bool all_light_;
  std::vector<ShmImports> imports_;  // by peer
  host::DescriptorSink* sink_ = nullptr;
};

}  // namespace rondo::shm
