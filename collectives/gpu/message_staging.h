// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/gpu/port.h"
#include "collectives/point/staging.h"
#include "device/copy_queue.h"

namespace rondo::gpu {

// The free slots for one direction.
class MessageSlots {
 public:
  static constexpr std::size_t small_count = 16, large_count = 8;  // in all
  static constexpr std::size_t bytes() noexcept {
    return small_count * transports::eager_bytes + large_count * point::point_piece_bytes;
  }

  explicit MessageSlots(std::byte* memory);
  MessageSlots(const MessageSlots&) = delete;
  MessageSlots& operator=(const MessageSlots&) = delete;

  // Null if no slot for so many bytes is free.
  point::Slot* take(std::size_t bytes) noexcept;
  void give(point::Slot& slot) noexcept;
  static bool is_small(std::size_t bytes) noexcept { return bytes <= transports::eager_bytes; }
  std::size_t free(std::size_t bytes) const noexcept { return kind(is_small(bytes)).count; }
  bool mostly_free(std::size_t bytes) const noexcept {
    return free(bytes) > (is_small(bytes) ? small_count : large_count) / 2;
  }
  // All are free.
  void clear() noexcept;

 private:
  struct Kind {
    base::Fifo<point::Slot> free;
    std::size_t count = 0;
  };
  Kind& kind(bool small) noexcept { return small ? small_ : large_; }
  const Kind& kind(bool small) const noexcept { return small ? small_ : large_; }

  std::array<point::Slot, small_count + large_count> all_;
  Kind small_, large_;
};

// Stages messages in memory of one GPU, through slots of pinned host memory. Threads and failures:
// as in device_memory.h.
class MessageStaging final : public OnPort<point::Staging> {
 public:
  // gpu outlives the object.
  MessageStaging(const device::Gpu& gpu, int ranks, std::shared_ptr<operation::Waker> waker);

  void load(point::Request& request, std::size_t offset, std::size_t bytes) override;
  void load_ahead(point::Request& request, std::size_t offset, std::size_t bytes) override;
  void sent(point::Request& request, point::Slot& slot) noexcept override;
  bool has_room(std::size_t bytes) const noexcept override { return receives_.free(bytes) != 0; }
  point::Slot* take_room(std::size_t bytes) noexcept override { return receives_.take(bytes); }
  void store(point::Request& request, point::Slot& slot, std::size_t offset,
             std::size_t bytes) override;
  bool copy(const point::Request& from, point::Request& to) override;
  bool advance_loads() override;
  point::Request* take_stored() override;
  void forget_all() noexcept override;

 private:
  static constexpr std::size_t most_copies =
      device::CopyQueue::most_batches - MessageSlots::small_count - MessageSlots::large_count;
  struct Copy {
    point::Request* request = nullptr;
    point::Slot* slot = nullptr;
  };
  // Copies under way, oldest first.
  struct Copies {
    device::CopyQueue& queue;
    std::array<Copy, device::CopyQueue::most_batches> items = {};
    std::size_t first = 0, count = 0;

    void push(const Copy& copy) noexcept { items[(first + count++) % items.size()] = copy; }
    Copy pop() noexcept;
  };

  // Bounds the slots for sends to one peer: a peer that takes nothing must not stop the others.
  static constexpr std::uint8_t most_small = 4, most_large = 2;
  struct Share {
    std::uint8_t small = 0, large = 0;
    std::uint8_t& of(bool is_small) noexcept { return is_small ? small : large; }
  };

  MessageSlots sends_, receives_;
  std::vector<Share> shares_;  // by rank
  Copies loads_, stores_;
  std::size_t copies_ = 0;  // among the stores, those without a slot
};

}  // namespace rondo::gpu
