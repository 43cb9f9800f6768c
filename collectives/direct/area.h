// SPDX-License-Identifier: Apache-2.0
//
// Lays out a rank's area (Windows::area) for direct algorithms. Each lane has posts, counters,
// values and slots. The rank writes its own area, and all ranks read it. Numbers only grow; a
// reader compares them and never computes an address from them. protocol.h says when each part may
// be written and read.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <rondo/types.h>

#include "collectives/direct/protocol.h"
#include "transports/transport.h"

namespace rondo::direct {

// Says "I have called the direct operation `sequence` of this lane".
struct alignas(64) DirectPost {
  std::uint64_t sequence = 0;         // stored last
  std::uint64_t check = 0;            // hash of the call and its number, and scaled_input
  std::array<std::byte, 48> value{};  // a larger one lies in DirectArea::value()
};

// The lowest bit of DirectPost::check, which the hash leaves free: this rank's input is multiplied
// by DirectDetails::input_scale as it is loaded. Ranks need not agree about it.
inline constexpr std::uint64_t scaled_input = 1;

// The rings: how many calls of each may be in flight, and the room for one value. A ring has twice
// as many places. Calls that are waited for one by one go through all places, so the rings of
// larger values are small enough for a cache.
struct RingShape {
  std::uint64_t depth;
  std::size_t value_bytes;
  constexpr std::uint64_t places() const noexcept { return 2 * depth; }  // a power of two
  constexpr std::uint64_t place(std::uint64_t number) const noexcept {
    return number & (places() - 1);
  }
  constexpr std::size_t bytes() const noexcept { return places() * value_bytes; }
};
inline constexpr std::array<RingShape, ring_kinds> direct_rings{
    {{64, sizeof(DirectPost::value)}, {16, std::size_t{1} << 10}, {4, std::size_t{16} << 10}}};
constexpr const RingShape& shape_of(Ring ring) noexcept {
  return direct_rings[static_cast<std::size_t>(ring)];
}
inline constexpr std::size_t direct_posts = shape_of(Ring::posts).places();
// The largest value that every rank reads in full. Beyond it the ranks share the work.
inline constexpr std::size_t most_eager_bytes = shape_of(Ring::long_values).value_bytes;
// Requires bytes <= most_eager_bytes.
constexpr Ring ring_for(std::size_t bytes) noexcept {
  if (bytes <= shape_of(Ring::posts).value_bytes) return Ring::posts;
  return bytes <= shape_of(Ring::short_values).value_bytes ? Ring::short_values : Ring::long_values;
}

// Chunks done, counted over all operations of the lane.
struct alignas(64) DirectCounters {
  std::array<std::uint64_t, counter_kinds> done{};  // by Counter
};

// Where a rank's memory lies, if in windows.
struct DirectPlaces {
  transports::WindowPlace in, out;  // its buffers
  transports::WindowPlace slots;    // in memory of its device (direct::Mover)
  // Not 0: it cannot use memory of others where it lies, or cannot combine there.
  std::uint32_t no_windows = 0;
  bool operator==(const DirectPlaces&) const = default;
};

// The full call, for error messages, and where its memory lies.
struct alignas(64) DirectDetails {
  transports::HeaderBytes header{};
  DirectPlaces places;
  double input_scale = 1;  // valid if the post says so
};

// Not 0: this rank's communicator has failed in an operation of this lane. So buffers of that
// operation may hold something else by now.
struct alignas(64) DirectEnd {
  std::uint64_t stopped = 0;
};

struct DirectControl {
  DirectPost posts[direct_posts];
  DirectCounters counters;
  DirectDetails details[direct_posts];
  DirectEnd end;
};

inline constexpr std::size_t direct_control_bytes = std::size_t{32} << 10;
// Slots are used in turn, so a rank may fill one while the slowest rank still copies out of the
// chunk three before. They are small enough to stay in the cache (docs/reference/direct.md).
inline constexpr std::uint32_t direct_slots = 4;
inline constexpr std::size_t direct_bulk_slot_bytes = std::size_t{256} << 10;
inline constexpr std::size_t direct_urgent_slot_bytes = std::size_t{32} << 10;
// So each rank's part of a slot has a cache line of its own.
inline constexpr std::size_t most_direct_ranks = direct_urgent_slot_bytes / 64;
static_assert(sizeof(DirectControl) <= direct_control_bytes);

constexpr std::size_t direct_slot_bytes(Priority lane) noexcept {
  return lane == Priority::bulk ? direct_bulk_slot_bytes : direct_urgent_slot_bytes;
}
constexpr std::size_t direct_lane_bytes(Priority lane) noexcept {
  return direct_control_bytes + shape_of(Ring::short_values).bytes() +
         shape_of(Ring::long_values).bytes() + direct_slots * direct_slot_bytes(lane);
}
// An area has room for three users of direct algorithms, which do not wait for each other: each has
// both lanes. `all` are the direct collectives of all ranks; `sums` and `copies` are the two parts
// of a two-level operation inside a host.
enum class DirectUse : std::uint8_t { all, sums, copies };
inline constexpr std::size_t direct_uses = 3;
constexpr std::size_t direct_use_bytes =
    direct_lane_bytes(Priority::bulk) + direct_lane_bytes(Priority::urgent);
static_assert(direct_uses * direct_use_bytes + transports::device_area_bytes <=
              transports::window_area_bytes);

// One lane of one rank's area.
class DirectArea {
 public:
  DirectArea(std::byte* area, DirectUse use, Priority lane) noexcept
      : base_(area + static_cast<std::size_t>(use) * direct_use_bytes +
              (lane == Priority::bulk ? 0 : direct_lane_bytes(Priority::bulk))),
        slot_bytes_(direct_slot_bytes(lane)) {}

  DirectControl& control() const noexcept { return *reinterpret_cast<DirectControl*>(base_); }
  DirectPost& post(std::uint64_t sequence) const noexcept {
    return control().posts[sequence % direct_posts];
  }
  DirectDetails& details(std::uint64_t sequence) const noexcept {
    return control().details[sequence % direct_posts];
  }
  // The value of the ring's call of that number.
  std::byte* value(Ring ring, std::uint64_t number) const noexcept {
    if (ring == Ring::posts) return post(number).value.data();
    const RingShape& shape = shape_of(ring);
    return values(ring) + shape.place(number) * shape.value_bytes;
  }
  std::byte* slot(std::uint64_t chunk) const noexcept {
    return values(Ring::long_values) + shape_of(Ring::long_values).bytes() +
           chunk % direct_slots * slot_bytes_;
  }

 private:
  std::byte* values(Ring ring) const noexcept {
    return base_ + direct_control_bytes +
           (ring == Ring::long_values ? shape_of(Ring::short_values).bytes() : 0);
  }

  std::byte* base_;
  std::size_t slot_bytes_;
};

inline std::uint64_t load_acquire(std::uint64_t& word) noexcept {
  return std::atomic_ref(word).load(std::memory_order_acquire);
}
inline void store_release(std::uint64_t& word, std::uint64_t value) noexcept {
  std::atomic_ref(word).store(value, std::memory_order_release);
}

// The flags of one lane in all ranks' areas, as the protocol wants them. One rank writes each flag.
// Data is stored before the flag that announces it (release), and loaded after it (acquire).
// Reentrant; nothing fails after the constructor.
class DirectFlags {
 public:
  // ranks: those that take part. rank: the place of this one among them.
  DirectFlags(transports::Windows& windows, std::span<const int> ranks, std::size_t rank,
              DirectUse use, Priority lane)
      : windows_(windows), rank_(rank) {
    for (const int other : ranks) areas_.emplace_back(windows.area(other), use, lane);
  }

  std::size_t rank() const noexcept { return rank_; }
  std::size_t size() const noexcept { return areas_.size(); }
  static constexpr std::uint64_t slots() noexcept { return direct_slots; }
  static constexpr std::uint64_t depth(Ring ring) noexcept { return shape_of(ring).depth; }
  const DirectArea& area(std::size_t rank) const noexcept { return areas_[rank]; }

  bool posted(std::size_t rank, std::uint64_t sequence) const noexcept {
    return load_acquire(areas_[rank].post(sequence).sequence) == sequence;
  }
  bool agrees(std::size_t rank, std::uint64_t sequence) const noexcept {
    return ((areas_[rank].post(sequence).check ^ areas_[rank_].post(sequence).check) &
            ~scaled_input) == 0;
  }
  // Whether the rank's input is multiplied by its DirectDetails::input_scale. Requires posted().
  bool scales_input(std::size_t rank, std::uint64_t sequence) const noexcept {
    return (areas_[rank].post(sequence).check & scaled_input) != 0;
  }
  void post(std::uint64_t sequence, std::uint64_t check) const {
    DirectPost& mine = areas_[rank_].post(sequence);
    mine.check = check;
    store_release(mine.sequence, sequence);
    windows_.notify();
  }
  bool reached(std::size_t rank, Counter counter, std::uint64_t value) const noexcept {
    return load_acquire(counter_of(rank, counter)) >= value;
  }
  std::uint64_t count(std::size_t rank, Counter counter) const noexcept {
    return load_acquire(counter_of(rank, counter));
  }
  void publish(Counter counter, std::uint64_t value) const {
    store_release(counter_of(rank_, counter), value);
    windows_.notify();
  }
  // Comes before the caller gets its buffers back.
  void stop() const noexcept {
    store_release(areas_[rank_].control().end.stopped, 1);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  // Asked after buffers of others have been read: false says that they were still theirs then.
  bool any_stopped() const noexcept {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return std::ranges::any_of(areas_, [](const DirectArea& area) {
      return load_acquire(area.control().end.stopped) != 0;
    });
  }

 private:
  std::uint64_t& counter_of(std::size_t rank, Counter counter) const noexcept {
    return areas_[rank].control().counters.done[static_cast<std::size_t>(counter)];
  }

  transports::Windows& windows_;
  std::size_t rank_;
  std::vector<DirectArea> areas_;
};

}  // namespace rondo::direct
