// SPDX-License-Identifier: Apache-2.0
#include "lib/rendezvous/attendance.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/rank_list.h"

namespace rondo::rendezvous {
namespace {

constexpr std::size_t most_listed = 16;

template <class Item, class Words>
void list(std::string& text, const char* title, const std::vector<Item>& items, Words words) {
  if (items.empty()) return;
  text += title;
  const std::size_t shown = std::min(items.size(), most_listed);
  for (std::size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : ", ") + words(items[i]);
  if (shown < items.size()) text += fmt::format(" and {} more", items.size() - shown);
}

}  // namespace

std::string describe_seconds(double seconds) {
  return fmt::format("{:.4g} s", seconds);
}

engine::Failure describe(const Attendance& attendance, const std::string& url,
                         const std::string& when) {
  std::string text =
      fmt::format("the {} ranks did not come together at {} {}", attendance.size, url, when);
  if (!attendance.missing.empty())
    text += fmt::format("; {}: {}", attendance.hopeless() ? "not there yet" : "missing",
                        base::list_of_ranks(attendance.missing));
  if (!attendance.shortage.empty())
    text += fmt::format("; rank 0 could not accept connections: {}", attendance.shortage);
  list(text, "; came twice: ", attendance.doubled, [](const Attendance::Doubled& item) {
    return fmt::format("rank {} (from {} and from {})", item.rank, item.first, item.second);
  });
  list(text, "; disagreeing about the ranks: ", attendance.disagreeing,
       [&](const Attendance::Disagreeing& item) {
         return fmt::format("{} says it is rank {} of {}, rank 0 says there are {}", item.address,
                            item.rank, item.size, attendance.size);
       });
  list(text, "; turned away or gone: ", attendance.turned, [](const Attendance::Turned& item) {
    return fmt::format("rank {} from {} ({})", item.rank, item.address, item.why);
  });
  if (attendance.foreign != 0)
    text += fmt::format("; {} connection{} not from Rondo", attendance.foreign,
                        attendance.foreign == 1 ? " was" : "s were");
  return {attendance.hopeless() ? Errc::rendezvous : Errc::deadline_exceeded, text};
}

}  // namespace rondo::rendezvous
