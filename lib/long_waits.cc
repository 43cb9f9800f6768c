// SPDX-License-Identifier: Apache-2.0
#include "lib/long_waits.h"

#include <algorithm>

#include "base/log.h"

namespace rondo::lib {

void LongWaits::tell(const control::DeadlineMessage& slow, int reporter,
                     const std::vector<control::Standing>& standings) {
  const auto lane = static_cast<std::size_t>(slow.lane);
  if (slow.operation != 0 && slow.operation <= told_[lane]) return;
  const auto still_waits = [&](const control::Standing& standing) {
    return standing.status.lanes[lane].finished < slow.operation;
  };
  if (slow.operation != 0 && std::ranges::none_of(standings, still_waits)) return;
  if (slow.operation == 0 &&
      standings[static_cast<std::size_t>(reporter)].status.messages.current.empty())
    return;
  std::string text = control::find_culprits(slow, reporter, standings).cause;
  if (slow.operation == 0 && text == last_) return;
  base::log_line(base::LogLevel::warning, text);
  last_ = std::move(text);
  told_[lane] = std::max(told_[lane], slow.operation);
  for (const control::Standing& standing : standings)
    for (std::size_t i = 0; i < lane_count; ++i)
      if (const engine::LaneStatus& status = standing.status.lanes[i]; !status.current.empty())
        told_[i] = std::max(told_[i], status.finished + 1);
}

}  // namespace rondo::lib
