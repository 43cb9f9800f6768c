// SPDX-License-Identifier: Apache-2.0
//
// Lists the calls of one lane on this rank: their numbers, the calls under way in the order of
// their start, and whether the oldest makes progress. The owners run them.
//
// Threads: thread-bound to whoever holds the engine's lock.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/clock.h"
#include "collectives/operation/failure.h"
#include "collectives/operation/frame.h"
#include "collectives/operation/operation.h"
#include "collectives/operation/watch.h"

namespace rondo::operation {

struct Awaited;

class LaneCalls {
 public:
  // size, tags: as in Watch.
  LaneCalls(int rank, transports::Lane lane, int size = 0, TagCounts* tags = nullptr)
      : rank_(rank), lane_(lane), watch_(size, tags) {}

  transports::Lane lane() const noexcept { return lane_; }
  std::uint64_t started() const noexcept { return started_; }
  // The caller must use the number, or the ranks no longer agree about the next ones.
  std::uint64_t take_number() noexcept { return ++started_; }
  // Calls of collectives begin in the order of their numbers, some later than they start.
  std::uint64_t begun() const noexcept { return begun_; }
  void begin(const Operation& operation) noexcept { begun_ = operation.number; }

  // The oldest call under way; Operation::later leads to the next.
  Operation* first() const noexcept { return first_; }
  // The newest call; Operation::earlier leads to the one before.
  Operation* last() const noexcept { return last_; }
  void append(Operation& operation) noexcept;
  void remove(Operation& operation) noexcept;
  // All calls have failed. Forgets them and returns the oldest. They stay linked by
  // Operation::later.
  Operation* clear() noexcept;

  // A collective has succeeded: status() names the newest.
  void ended(const CollectiveOperation& operation) noexcept;
  // Something has moved: for any collective of this lane, or for the oldest call of messages.
  void moved() noexcept { ++moves_; }

  // The driver looks at the clock.
  void look(base::TimePoint now) {
    looked_ = now;
    watch_.look(first_, now);
  }
  // When the driver did so last.
  base::TimePoint looked() const noexcept { return looked_; }

  // Times the oldest call.
  Watch& watch() noexcept { return watch_; }
  const Watch& watch() const noexcept { return watch_; }

  // Whether nothing has moved since the last call of this function.
  bool stands_still() noexcept { return std::exchange(moves_seen_, moves_) == moves_; }
  // Each returns true once for a call that is the oldest: tell_stalled() for any, tell_slow() when
  // the call has waited for at least `limit`.
  bool tell_stalled() noexcept;
  bool tell_slow(nanoseconds limit, base::TimePoint now) noexcept;

  LaneStatus status(base::TimePoint now) const;

  // The failure when a peer's frame or post belongs to another call than this rank expects. mine:
  // the call that this rank expects, or null. If a call under way has the number of theirs, the
  // text compares with that one. link: over which a frame came.
  Failure disagreement(int peer, const CollectiveOperation* mine, const Frame& theirs,
                       const transports::Link* link = nullptr) const;
  // The failure of a call of this lane whose time is over, as this rank alone knows it: "not done
  // within 2 s: rank 0 waits for data from rank 1, 2"
  Failure late(const Operation& operation) const;

 private:
  std::string disagreement_text(int peer, const CollectiveOperation* mine,
                                const Frame& theirs) const;

  const int rank_;
  const transports::Lane lane_;
  Operation *first_ = nullptr, *last_ = nullptr;
  std::uint64_t started_ = 0, begun_ = 0;
  std::uint64_t failed_ = 0;  // the oldest; 0: none
  std::uint64_t moves_ = 0, moves_seen_ = 0;
  std::uint64_t stalled_told_ = 0, slow_told_ = 0;  // the newest number
  schedules::Signature last_signature_;
  std::uint64_t last_number_ = 0;
  base::TimePoint looked_ = base::Clock::now();
  Watch watch_;
};

}  // namespace rondo::operation
