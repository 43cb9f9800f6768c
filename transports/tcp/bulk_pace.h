// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/clock.h"

namespace rondo::tcp {

// Computes how fast a connection may send large frames, so that small frames of another connection
// find no queue in front of the network. Arithmetic only: no clock, no socket. Reentrant.
//
// A connection without a limit keeps a queue of milliseconds at the slowest link. While that queue
// stands, the rate of acknowledged bytes is the connection's share of the link. The connection is
// then held a little below its share, and the queue goes away. From time to time it is freed for a
// moment, to measure its share again.
//
// A long round trip alone does not prove that this connection is too fast: the acknowledgements may
// wait in a queue at the peer. But if fewer bytes are acknowledged than the limit allows, too
// little of the link is left for others (the small frames themselves, if they are many). The
// connection is then held below that rate, which becomes a ceiling. The ceiling rises a little each
// time that the connection has been freed.
//
// If its own input comes more slowly than the link takes it, a freed connection keeps no queue. It
// still sends in bursts, and each burst is a queue for a moment. So it is soon held to its former
// share, which spreads the bursts.
class BulkPace {
 public:
  // A look at a connection, as the kernel reports it.
  struct Sample {
    base::TimePoint now;
    microseconds rtt{};        // smoothed
    microseconds least_rtt{};  // the least that the kernel knows
    std::uint64_t acked = 0;   // bytes since the beginning
    microseconds busy{};       // the total time in which something was in flight
    bool waiting = false;      // there is more to send than the network takes
  };

  static constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();
  // The part of its share that a connection is held to. What is left also carries small frames and
  // acknowledgements.
  static constexpr double part = 0.93;

  // The bytes per second that the connection may send from now on. Call it every few milliseconds
  // while the connection sends.
  std::uint64_t look(const Sample& sample) noexcept;

 private:
  enum class State {
    free,      // without a limit, until its share is known
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
  base::TimePoint since_{};  // when this state began
  double limit_ = 0;         // bytes per second
  double share_ = 0;
  // Bounds the rate: the share that was left for the connection while it was held.
  double ceiling_ = std::numeric_limits<double>::max();
  nanoseconds held_for_{};
  microseconds least_rtt_ = microseconds::max();
  std::uint64_t acked_ = 0;
  // The latest shares, in a ring; their median counts.
  std::array<double, 5> shares_{};
  std::size_t share_count_ = 0;
  // The present measurement.
  bool measuring_ = false;
  base::TimePoint measured_since_{};
  std::uint64_t acked_before_ = 0;
  // The values when it was freed, and what was seen since.
  std::uint64_t acked_free_ = 0;
  microseconds busy_free_{};
  bool counting_ = false, queue_seen_ = false;
};

// Holds a connection to the rate of BulkPace while urgent frames may use the same network. The
// kernel does the pacing. Thread-bound (the driver of the transport). If the kernel gives no
// information or refuses a rate, the former rate stays.
class PacedSocket {
 public:
  void attach(int socket) noexcept { socket_ = socket; }
  // Call it every few milliseconds. restrained: urgent frames have been in use lately; without that
  // the connection has no limit.
  void pace(base::TimePoint now, bool restrained) noexcept;

 private:
  int socket_ = -1;
  std::uint64_t rate_ = BulkPace::unlimited;  // the rate that the kernel has
  BulkPace pace_;
};

}  // namespace rondo::tcp
