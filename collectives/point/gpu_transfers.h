// SPDX-License-Identifier: Apache-2.0
//
// Moves the bytes of messages between memory of one GPU and slots of pinned host memory, from where
// links send them and into which links receive. A slot holds a piece of one message. Sends and
// receives have slots of their own, and a receive gives its slot back as soon as the GPU has stored
// it: so no send waits for a receive of another rank that waits for a send.
//
// Threads and failures: as in operation/gpu_port.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/operation/gpu_port.h"
#include "collectives/operation/waker.h"
#include "collectives/point/parts.h"
#include "device/copy_queue.h"
#include "device/gpu.h"

namespace rondo::point {

// Memory for a piece of a message.
struct GpuSlot {
  GpuSlot* next = nullptr;  // of the same request, or free
  std::byte* memory = nullptr;
  bool small = false;
  bool loaded = false;  // the GPU has written it
  bool lent = false;    // a link sends it
};

// The free slots for one direction.
class GpuSlots {
 public:
  static constexpr std::size_t small_count = 16, large_count = 8;  // in all
  static constexpr std::size_t bytes() noexcept {
    return small_count * transports::eager_bytes + large_count * point_piece_bytes;
  }

  explicit GpuSlots(std::byte* memory);
  GpuSlots(const GpuSlots&) = delete;
  GpuSlots& operator=(const GpuSlots&) = delete;

  // Null if no slot for so many bytes is free.
  GpuSlot* take(std::size_t bytes) noexcept;
  void give(GpuSlot& slot) noexcept;
  static bool is_small(std::size_t bytes) noexcept { return bytes <= transports::eager_bytes; }
  std::size_t free(std::size_t bytes) const noexcept { return kind(is_small(bytes)).count; }
  bool mostly_free(std::size_t bytes) const noexcept {
    return free(bytes) > (is_small(bytes) ? small_count : large_count) / 2;
  }
  // All are free.
  void clear() noexcept;

 private:
  struct Kind {
    base::Fifo<GpuSlot> free;
    std::size_t count = 0;
  };
  Kind& kind(bool small) noexcept { return small ? small_ : large_; }
  const Kind& kind(bool small) const noexcept { return small ? small_ : large_; }

  std::array<GpuSlot, small_count + large_count> all_;
  Kind small_, large_;
};

class GpuTransfers {
 public:
  // gpu outlives the object.
  GpuTransfers(const device::Gpu& gpu, int ranks, std::shared_ptr<operation::Waker> waker);
  GpuTransfers(const GpuTransfers&) = delete;
  GpuTransfers& operator=(const GpuTransfers&) = delete;

  operation::GpuPort& port() noexcept { return port_; }
  const operation::GpuPort& port() const noexcept { return port_; }

  // Sends. The pieces of a request are loaded and sent in order. Loads this one, unless that was
  // done before, no slot is free, or the peer has its share of them.
  void load(Request& request, std::size_t offset, std::size_t bytes);
  // Does the same, but leaves slots for pieces that are needed sooner.
  void load_ahead(Request& request, std::size_t offset, std::size_t bytes);
  // The next piece to send, once it has been loaded; else null.
  static GpuSlot* loaded(const Request& request) noexcept;
  // The piece in the slot has been sent. A link may take a later piece first.
  void sent(Request& request, GpuSlot& slot) noexcept;

  // Receives. Whether take_room() has a slot for so many bytes.
  bool has_room(std::size_t bytes) const noexcept { return receives_.free(bytes) != 0; }
  GpuSlot* take_room(std::size_t bytes) noexcept { return receives_.take(bytes); }
  // Copies the slot to this place of the request, and frees it afterwards.
  void store(Request& request, GpuSlot& slot, std::size_t offset, std::size_t bytes);
  // A message of this rank to itself, on this GPU. copy() requires can_copy(), and counts as a
  // store of `to`.
  bool can_copy() const noexcept { return copies_ < most_copies; }
  void copy(const Request& from, Request& to);

  // Looks at the loads under way. True when one has ended.
  bool advance_loads();
  // A request of which the GPU has done a store; null when there is no other.
  Request* take_stored();
  // Makes the GPU wake the driver when it has done something. False: it already has.
  bool prepare_sleep();
  // Forgets all requests. Copies may still be under way.
  void clear() noexcept;

 private:
  static constexpr std::size_t most_copies =
      device::CopyQueue::most_batches - GpuSlots::small_count - GpuSlots::large_count;
  struct Copy {
    Request* request = nullptr;
    GpuSlot* slot = nullptr;
  };
  // Copies under way, oldest first.
  struct Copies {
    device::CopyQueue& queue;
    std::array<Copy, device::CopyQueue::most_batches> items = {};
    std::size_t first = 0, count = 0;

    void push(const Copy& copy) noexcept { items[(first + count++) % items.size()] = copy; }
    Copy pop() noexcept;
  };

  // The slots for sends that a peer has: one that takes nothing must not stop the others.
  static constexpr std::uint8_t most_small = 4, most_large = 2;
  struct Share {
    std::uint8_t small = 0, large = 0;
    std::uint8_t& of(bool is_small) noexcept { return is_small ? small : large; }
  };

  operation::GpuPort port_;
  GpuSlots sends_, receives_;
  std::vector<Share> shares_;  // by rank
  Copies loads_, stores_;
  std::size_t copies_ = 0;  // among the stores, those without a slot
};

}  // namespace rondo::point
