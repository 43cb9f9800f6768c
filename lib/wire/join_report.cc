// SPDX-License-Identifier: Apache-2.0
#include "lib/wire/join_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace rondo::wire {
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

operation::Failure describe(const JoinReport& report, const std::string& url,
                            const std::string& when) {
  std::string text =
      fmt::format("the {} ranks did not come together at {} {}", report.size, url, when);
  if (!report.missing.empty())
    text += fmt::format("; {}: {}", report.hopeless() ? "not there yet" : "missing",
                        base::list_of_ranks(report.missing));
  if (!report.shortage.empty())
    text += fmt::format("; rank 0 could not accept connections: {}", report.shortage);
  list(text, "; came twice: ", report.doubled, [](const JoinReport::Doubled& item) {
    return fmt::format("rank {} (from {} and from {})", item.rank, item.first, item.second);
  });
  list(text, "; disagreeing about the ranks: ", report.disagreeing,
       [&](const JoinReport::Disagreeing& item) {
         return fmt::format("{} says it is rank {} of {}, rank 0 says there are {}", item.address,
                            item.rank, item.size, report.size);
       });
  list(text, "; turned away or gone: ", report.turned, [](const JoinReport::Turned& item) {
    return fmt::format("rank {} from {} ({})", item.rank, item.address, item.why);
  });
  list(text, "; turned away, because rank 0 has no job secret (RONDO_SECRET): ",
       std::vector(report.other_hosts.begin(), report.other_hosts.end()),
       [](const std::string& address) { return "a connection from " + address; });
  if (report.foreign != 0)
    text += fmt::format("; {} connection{} not from Rondo", report.foreign,
                        report.foreign == 1 ? " was" : "s were");
  return {report.hopeless() ? Errc::rendezvous
          : report.refused  ? Errc::authentication
                            : Errc::deadline_exceeded,
          text};
}

operation::Failure failure_of(const std::exception& error) {
  const auto* const known = dynamic_cast<const Error*>(&error);
  const bool ours = known != nullptr && known->code().category() == error_category();
  return {ours ? static_cast<Errc>(known->code().value()) : Errc::system, error.what()};
}

std::string could_not_connect(int rank, const std::string& why) {
  const std::string who = "rank " + std::to_string(rank) + " ";
  // No rank is to blame for a message that begins so: all ranks find it out together.
  const bool known = why.starts_with(who) || why.starts_with("the ranks ");
  return known ? why : who + "could not connect: " + why;
}

}  // namespace rondo::wire
