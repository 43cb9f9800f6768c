// SPDX-License-Identifier: Apache-2.0
//
// The calls of one lane on this rank: their numbers, those under way in the order of their start,
// and whether the oldest makes progress. It runs nothing: that is the owners' work.
//
// Threads: thread-bound to whoever holds the engine's lock.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/clock.h"
#include "collectives/engine/failure.h"
#include "collectives/engine/frame.h"
#include "collectives/engine/operation.h"

namespace rondo::engine {

class LaneCalls {
 public:
  LaneCalls(int rank, transports::Lane lane) noexcept : rank_(rank), lane_(lane) {}

  transports::Lane lane() const noexcept { return lane_; }
  std::uint64_t started() const noexcept { return started_; }
  // A number that has been taken must be used, or the ranks no longer agree.
  std::uint64_t take_number() noexcept { return ++started_; }

  // The oldest call under way; Operation::later leads on.
  Operation* first() const noexcept { return first_; }
  void append(Operation& operation) noexcept;
  void remove(Operation& operation) noexcept;
  // Forgets all and returns the oldest.
  Operation* clear() noexcept;

  // A collective has ended well: the newest is named in messages.
  void ended(const CollectiveOperation& operation) noexcept;
  // A sign of life: something has come for a call of this lane.
  void moved() noexcept { ++moves_; }

  // Whether nothing has moved since the last call of this function.
  bool stands_still() noexcept { return std::exchange(moves_seen_, moves_) == moves_; }
  // Of the oldest call, once for each: it stands still; it has waited for longer than that.
  bool tell_stalled() noexcept;
  bool tell_slow(nanoseconds limit, base::TimePoint now) noexcept;

  LaneStatus status(base::TimePoint now) const;

  // A peer's frame or post says that it has called something else here. mine: the call that this
  // rank expects from it; a call of the same number tells more, where there is one.
  Failure disagreement(int peer, const CollectiveOperation* mine, const Frame& theirs) const;
  // "not done within 2 s: rank 0 waits for data from rank 1, 2"
  std::string late_text(nanoseconds limit, std::span<const int> awaited) const;

 private:
  const int rank_;
  const transports::Lane lane_;
  Operation *first_ = nullptr, *last_ = nullptr;
  std::uint64_t started_ = 0;
  std::uint64_t moves_ = 0, moves_seen_ = 0;
  std::uint64_t stalled_told_ = 0, slow_told_ = 0;  // the newest number
  schedules::Signature last_signature_;
  std::uint64_t last_number_ = 0;
};

}  // namespace rondo::engine
