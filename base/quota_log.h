// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/log.h"

namespace rondo::base {

// Lines that strangers can cause must not fill a disk: the first ten are written, then at most one
// a minute, which tells how many were left out before it. Thread-bound.
class QuotaLog {
 public:
  void line(LogLevel level, const std::string& text);
  // How many lines were left out since the last one that was written; no value: leave this one out
  // as well.
  std::optional<std::uint64_t> admit(TimePoint now);

 private:
  int first_lines_ = 0;
  std::uint64_t left_out_ = 0;
  TimePoint next_;
};

}  // namespace rondo::base
