// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/clock.h"

namespace rondo::base {

// Something that a busy thread does now and then: due() holds at most once in `interval`. It reads
// the clock at every `calls`th call only. Thread-bound.
class Occasional {
 public:
  Occasional(milliseconds interval, unsigned calls) noexcept
      : interval_(interval), most_calls_(calls) {}
  bool due() noexcept {
    if (++calls_ < most_calls_) return false;
    calls_ = 0;
    const TimePoint now = Clock::now();
    if (now < next_) return false;
    next_ = now + interval_;
    return true;
  }

 private:
  const milliseconds interval_;
  const unsigned most_calls_;
  unsigned calls_ = 0;
  TimePoint next_{};
};

}  // namespace rondo::base
