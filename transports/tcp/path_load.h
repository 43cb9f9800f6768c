// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace rondo::tcp {

// What one path of a link is taken to carry, and when it will have carried what it was given.
// Between two looks at the socket's queue the path is taken to send at its rate; each look sets
// that right. Arithmetic alone: no clock, no socket.
//
// The rate is what has been delivered while something was queued. A path whose queue ran empty has
// shown only that it is not slower, so that may raise the rate and never lowers it; and a path that
// nobody has tested for a while is thought better of, little by little, until it is tried again.
class PathLoad {
 public:
  // Mbit/s as the interface's driver says it; 0 when it does not.
  explicit PathLoad(std::uint32_t speed = 0) noexcept;
  // The socket has taken so many bytes.
  void took(base::TimePoint now, std::size_t bytes) noexcept;
  // So many bytes are in the socket's queue or on their way without an answer.
  void queued(base::TimePoint now, std::size_t bytes) noexcept;
  // When so many bytes more would be delivered.
  base::TimePoint finish(base::TimePoint now, std::size_t bytes) const noexcept;
  double bytes_per_second() const noexcept { return rate_; }

 private:
  void learn(base::TimePoint now, std::size_t bytes) noexcept;
  nanoseconds duration(std::size_t bytes) const noexcept;

  double first_rate_, rate_;
  bool measured_ = false;
  base::TimePoint free_at_{};
  // Of the measurement under way: since when, what was queued then and has come since, whether the
  // queue ran empty in between.
  bool measuring_ = false, ran_empty_ = false;
  base::TimePoint since_{}, tested_{};
  std::size_t given_ = 0;
};

}  // namespace rondo::tcp
