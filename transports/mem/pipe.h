// SPDX-License-Identifier: Apache-2.0
//
// The two ends of a link share a pipe; each end has a thread of its own.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <rondo/error.h>

#include "base/copy.h"
#include "base/event.h"
#include "base/mix.h"
#include "base/mutex.h"
#include "transports/mem/mem.h"
#include "transports/transport.h"

namespace rondo::mem {

// Wakes one rank. The sleeper says that it is about to sleep and then looks once more for work; the
// others do their work and then look whether it sleeps. All of it is sequentially consistent, so
// one of the two sees the other: no wake-up is lost. A system call is made only for a rank that
// sleeps.
class MemBell {
 public:
  MemBell() {
    if (!event_)
      throw Error(Errc::system, std::string("eventfd: ") + std::generic_category().message(errno));
  }
  int descriptor() const noexcept { return event_.descriptor(); }
  // The sleeper's side.
  void lie_down() noexcept {
    lying_ = true;
    asleep_.store(true);
  }
  // Clears the event in any case. A ring that is under way may still come after this: it wakes the
  // next sleep once for nothing.
  void get_up() noexcept {
    if (!std::exchange(lying_, false)) return;
    asleep_.store(false);
    event_.clear();
  }
  // Everybody else's. Nothing is written to what all share when nobody sleeps.
  void ring() noexcept {
    if (asleep_.load() && asleep_.exchange(false)) event_.set();
  }

 private:
  base::Event event_;
  std::atomic<bool> asleep_{false};
  bool lying_ = false;  // the sleeper's own
};

// Bytes in flight: at most `capacity` that were written and not read yet. One thread writes and one
// reads. The counters run on for ever; a byte's place is its number modulo the capacity. They are
// sequentially consistent because sleeping depends on it.
class MemRing {
 public:
  explicit MemRing(std::size_t capacity) noexcept : capacity_(capacity) {}

  // The writer's side. Takes what fits and says how much that was.
  std::size_t write(std::span<const std::byte> bytes) {
    if (!bytes_) bytes_ = std::make_unique<std::byte[]>(capacity_);
    const std::size_t count = std::min(bytes.size(), room());
    const std::uint64_t written = written_.load();
    const std::size_t place = written % capacity_, first = std::min(count, capacity_ - place);
    base::copy_bytes(bytes_.get() + place, bytes.data(), first);
    base::copy_bytes(bytes_.get(), bytes.data() + first, count - first);
    written_.store(written + count);
    return count;
  }
  std::size_t room() const noexcept {
    return capacity_ - static_cast<std::size_t>(written_.load() - read_.load());
  }

  // The reader's side. The view stays good until its bytes are consumed.
  std::span<const std::byte> view() const noexcept {
    const std::uint64_t read = read_.load();
    const auto count = static_cast<std::size_t>(written_.load() - read);
    const std::size_t place = read % capacity_;
    return {count == 0 ? nullptr : bytes_.get() + place, std::min(count, capacity_ - place)};
  }
  void consume(std::size_t count) noexcept { read_.store(read_.load() + count); }
  std::uint64_t position() const noexcept { return read_.load(); }  // of the next byte to read

 private:
  std::size_t capacity_;
  // Made at the first write: most links of a large job are never used.
  std::unique_ptr<std::byte[]> bytes_;
  std::atomic<std::uint64_t> written_{0}, read_{0};
};

// One direction of a link.
struct MemRoute {
  // Memory that the receiver has granted for the payload of one frame. The sender writes it by
  // itself, as an RDMA writer does: at a time of its own, in any order, and before the header has
  // come.
  struct Grant {
    std::uint64_t frame = 0;
    std::span<std::byte> destination;
    bool written = false;
  };
  enum Purpose : std::uint64_t { delay, stall, coin, piece, late };

  // Draws what goes wrong: 0 to `most`, nearly even. It is a pure function of the seed, the route
  // and the arguments, so it does not matter when or how often it is asked for.
  std::uint64_t roll(Purpose purpose, std::uint64_t index, std::uint64_t most) const noexcept {
    std::uint64_t value = seed;
    for (const auto part : {static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to),
                            static_cast<std::uint64_t>(lane), static_cast<std::uint64_t>(purpose)})
      value = base::mix_hash(0, value) + part;
    return base::mix_hash(0, base::mix_hash(0, value) + index) % (most + 1);
  }
  // The grant for this frame; null: there is none.
  Grant* grant_for(std::uint64_t frame) RONDO_REQUIRES(mutex) {
    const auto found = std::ranges::find(grants, frame, &Grant::frame);
    return found == grants.end() ? nullptr : &*found;
  }

  const int from, to;
  const transports::Lane lane;
  const MemFaults& faults;
  const std::uint64_t seed;
  MemBell &writer, &reader;
  MemRing ring{faults.capacity};
  std::atomic<bool> held{false};         // nothing arrives
  std::atomic<bool> room_wanted{false};  // by the writer
  // Held during the copy of a payload: once the receiver has closed this, no write is under way.
  base::Mutex mutex{};
  std::vector<Grant> grants RONDO_GUARDED_BY(mutex){};
  bool closed RONDO_GUARDED_BY(mutex) = false;  // nothing more is granted
};

// Both directions, and how the link ended.
struct MemPipe {
  enum State : int { open, closed, cut };
  static constexpr std::uint64_t not_cut = UINT64_MAX;

  MemRoute& from(int rank) noexcept { return upwards.from == rank ? upwards : downwards; }
  // The first end counts.
  void end(State how) noexcept {
    int expected = open;
    state.compare_exchange_strong(expected, how);
  }

  MemRoute upwards, downwards;  // from the lower rank to the higher, and back
  std::atomic<int> state{open};
  std::atomic<std::uint64_t> cut_after{not_cut};  // bytes, for the message
};

}  // namespace rondo::mem
