// SPDX-License-Identifier: Apache-2.0
#include "lib/long_waits.h"

#include <algorithm>

#include "base/log.h"

namespace rondo {

void LongWaits::tell(const DeadlineMessage& slow, int reporter, const std::vector<Standing>& standings) {
  const auto lane = static_cast<std::size_t>(slow.lane);
  if (slow.operation != 0 && slow.operation <= told_[lane]) return;
  const auto still_waits = [&](const Standing& standing) {
    return standing.status.lanes[lane].finished < slow.operation;
  };
  if (slow.operation != 0 && std::ranges::none_of(standings, still_waits)) return;
  if (slow.operation == 0 && standings[static_cast<std::size_t>(reporter)].status.messages.current.empty())
    return;
  std::string text = find_culprits(slow, reporter, standings).cause;
  if (slow.operation == 0 && text == last_) return;
  log_line(LogLevel::warning, text);
  last_ = std::move(text);
  told_[lane] = std::max(told_[lane], slow.operation);
  for (const Standing& standing : standings)
    for (std::size_t i = 0; i < lane_count; ++i)
      if (const LaneStatus& status = standing.status.lanes[i]; !status.current.empty())
        told_[i] = std::max(told_[i], status.finished + 1);
}

}  // namespace rondo
