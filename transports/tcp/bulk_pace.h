// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/clock.h"

namespace rondo::tcp {

// How fast a connection may send large frames so that small ones of another connection find no
// queue in front of the network. Arithmetic alone: no clock, no socket.
//
// A connection that may send as fast as it can keeps a queue of milliseconds at the slowest link,
// and what is acknowledged while that queue stands is the share of the link that it has. It is then
// held a little below that, and the queue goes away. From time to time it is let go for a moment,
// to see what its share is now.
//
// A long round trip alone does not say that this connection is too fast: the acknowledgements may
// wait in a queue of the peer's. Only when less is acknowledged than it is held to is there too
// little left for the others (the small frames themselves, if they are many), and it is held to
// that until it is let go the next time.
//
// Who is let go and has nothing to keep a queue with, because its own input comes more slowly,
// still sends in bursts, each of which is a queue for a moment. So it is soon held to its share as
// it was, which spreads them.
class BulkPace {
 public:
  // What the kernel says of a connection.
  struct Sample {
    base::TimePoint now;
    microseconds rtt{};        // smoothed
    microseconds least_rtt{};  // ever
    std::uint64_t acked = 0;   // bytes since the beginning
    microseconds busy{};       // all the time in which something was on its way
    bool waiting = false;      // there is more to send than the network takes
  };

  static constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();
  // The part of its share that a connection is held to. What is left also carries small frames and
  // acknowledgements.
  static constexpr double part = 0.93;

  // The bytes per second that it may send from now on. To be asked every few milliseconds while it
  // sends.
  std::uint64_t look(const Sample& sample) noexcept;

 private:
  enum class State {
    free,      // as fast as it can, until its share is known
    draining,  // at half its limit, until the queue is gone
    held,      // at its limit
  };

  void measure(const Sample& sample, bool queue) noexcept;
  void look_free(const Sample& sample, bool queue) noexcept;
  void learn(base::TimePoint now, double rate) noexcept;
  void cut(base::TimePoint now, double rate) noexcept;
  void enter(State state, base::TimePoint now) noexcept;
  std::uint64_t rate() const noexcept;

  State state_ = State::free;
  base::TimePoint since_{};  // in this state
  double limit_ = 0;         // bytes per second
  double share_ = 0;
  // What was left of the share while it was held.
  double ceiling_ = std::numeric_limits<double>::max();
  nanoseconds held_for_{};
  microseconds least_rtt_ = microseconds::max();
  std::uint64_t acked_ = 0;
  // The latest shares, in a ring; their median counts.
  std::array<double, 5> shares_{};
  std::size_t share_count_ = 0;
  // The measurement under way.
  bool measuring_ = false;
  base::TimePoint measured_since_{};
  std::uint64_t acked_before_ = 0;
  // Since it was let go.
  std::uint64_t acked_free_ = 0;
  microseconds busy_free_{};
  bool counting_ = false, queue_seen_ = false;
};

}  // namespace rondo::tcp
