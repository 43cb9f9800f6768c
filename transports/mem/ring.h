// SPDX-License-Identifier: Apache-2.0
//
// The two ends of a link share a ring: bytes in flight, how the link ended, and a bell that wakes a
// sleeping rank. One thread writes to a ring and one reads from it; nothing here blocks.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <system_error>

#include <rondo/error.h>

#include "base/copy.h"
#include "base/file_descriptor.h"
#include "transports/mem/grants.h"

namespace rondo::mem {

// One direction of a link: at most `capacity` bytes written and not yet read. The counters run on
// for ever; a byte's place is its number modulo the capacity. They are sequentially consistent
// because sleeping depends on it: see MemBell.
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

// Wakes one rank. The sleeper says that it is about to sleep and then looks once more for work; the
// others do their work and then look whether it sleeps. All of it is sequentially consistent, so
// one of the two sees the other: no wake-up is lost. A system call is made only for a rank that
// sleeps.
class MemBell {
 public:
  MemBell() : descriptor_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!descriptor_)
      throw Error(Errc::system, std::string("eventfd: ") + std::generic_category().message(errno));
  }

  int descriptor() const noexcept { return descriptor_.get(); }
  // The sleeper's side.
  void lie_down() noexcept {
    lying_ = true;
    asleep_.store(true);
  }
  void get_up() noexcept {
    if (!lying_) return;
    lying_ = false;
    asleep_.store(false);
    // Read in any case. A ring that is under way may still come after this: it wakes the next sleep
    // once for nothing.
    std::uint64_t rings = 0;
    while (::read(descriptor_.get(), &rings, sizeof rings) < 0 && errno == EINTR) {
    }
  }
  // Everybody else's. ring_sleeper: after a fence of the caller's, without a write to what all
  // share when nobody sleeps.
  void ring_sleeper() noexcept {
    if (asleep_.load(std::memory_order_relaxed)) ring();
  }
  void ring() noexcept {
    if (!asleep_.exchange(false)) return;
    const std::uint64_t one = 1;
    while (::write(descriptor_.get(), &one, sizeof one) < 0 && errno == EINTR) {
    }
  }

 private:
  base::FileDescriptor descriptor_;
  std::atomic<bool> asleep_{false};
  bool lying_ = false;  // the sleeper's own
};

// A link between two ranks. Index 0 is the direction from the lower rank to the higher.
struct MemPipe {
  enum State : int { open, closed, cut };
  explicit MemPipe(std::size_t capacity) : rings{MemRing(capacity), MemRing(capacity)} {}

  static int direction(int from, int to) noexcept { return from < to ? 0 : 1; }

  MemRing rings[2];
  MemGrants grants[2];                         // of the reader of that direction, to its writer
  std::atomic<bool> held[2] = {false, false};  // nothing of that direction arrives
  std::atomic<bool> room_wanted[2] = {false, false};  // by the writer of that direction
  std::atomic<int> state{open};
  static constexpr std::uint64_t not_cut = UINT64_MAX;
  std::atomic<std::uint64_t> cut_after{not_cut};  // bytes, for the message

  // The first end counts.
  void end(State how) noexcept {
    int expected = open;
    state.compare_exchange_strong(expected, how);
  }
};

}  // namespace rondo::mem
