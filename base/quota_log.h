// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/log.h"

namespace rondo::base {

// Limits log lines that strangers can cause, so that they cannot fill a disk. The first ten are
// written, then at most one a minute, which tells how many were left out before it. Thread-bound.
class QuotaLog {
 public:
  void line(LogLevel level, const std::string& text);
  // Says whether a line may be written now. The value is the number of lines that were left out
  // since the last one that was written; without a value, leave this line out too.
  std::optional<std::uint64_t> admit(TimePoint now);

 private:
  int first_lines_ = 0;
  std::uint64_t left_out_ = 0;
  TimePoint next_;
};

}  // namespace rondo::base
