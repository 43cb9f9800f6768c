// SPDX-License-Identifier: Apache-2.0
#include "base/quota_log.h"

#include <utility>

namespace rondo::base {
namespace {

constexpr int free_lines = 10;
constexpr std::chrono::minutes pause{1};

}  // namespace

std::optional<std::uint64_t> QuotaLog::admit(TimePoint now) {
  if (first_lines_ < free_lines) {
    ++first_lines_;
    next_ = now + pause;
    return 0;
  }
  if (now < next_) {
    ++left_out_;
    return std::nullopt;
  }
  next_ = now + pause;
  return std::exchange(left_out_, 0);
}

void QuotaLog::line(LogLevel level, const std::string& text) {
  if (!log_enabled(level)) return;
  const auto left_out = admit(Clock::now());
  if (!left_out) return;
  log_line(level, *left_out == 0 ? text
                                 : text + " (" + std::to_string(*left_out) +
                                       " such lines before it were left out)");
}

}  // namespace rondo::base
