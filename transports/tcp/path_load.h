// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace rondo::tcp {

// Estimates how fast one path of a link is, and when it will have delivered what it was given.
// Between two looks at the socket's queue the path is assumed to send at its rate; each look
// corrects that. Arithmetic only: no clock, no socket. Reentrant.
//
// The rate is what was delivered while something was queued. A path whose queue ran empty has shown
// only that it is not slower: that may raise the rate, and never lowers it. If a path that has not
// been measured for 100 ms gets bytes again, its rate is doubled, but not above what was assumed
// first.
class PathLoad {
 public:
  // speed: in Mbit/s, as the interface's driver reports it; 0: not known.
  explicit PathLoad(std::uint32_t speed = 0) noexcept;
  // The socket has taken this many bytes.
  void took(base::TimePoint now, std::size_t bytes) noexcept;
  // This many bytes are in the socket's queue or in flight without an acknowledgement.
  void queued(base::TimePoint now, std::size_t bytes) noexcept;
  // When this many more bytes would be delivered.
  base::TimePoint finish(base::TimePoint now, std::size_t bytes) const noexcept;
  double bytes_per_second() const noexcept { return rate_; }

 private:
  void learn(base::TimePoint now, std::size_t bytes) noexcept;
  nanoseconds duration(std::size_t bytes) const noexcept;

  double first_rate_, rate_;
  bool measured_ = false;
  base::TimePoint free_at_{};
  // The present measurement: when it began, whether the queue ran empty since, and in given_ the
  // bytes that were queued then or were taken since. tested_: when the rate was last measured or
  // raised.
  bool measuring_ = false, ran_empty_ = false;
  base::TimePoint since_{}, tested_{};
  std::size_t given_ = 0;
};

}  // namespace rondo::tcp
