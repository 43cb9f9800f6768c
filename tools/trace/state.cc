// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "base/text.h"
#include "base/traits.h"
#include "tools/shared/lists.h"
#include "tools/shared/text.h"
#include "tools/trace/findings.h"

namespace rondo::tools {
namespace {

using RanksByText = std::map<std::string, std::vector<int>>;

constexpr std::size_t most_alike = 12, most_late = 5;
constexpr double unbounded = std::numeric_limits<double>::infinity();

// A finding for each text, in the order of the first ranks that have it.
void tell_alike(const RanksByText& by_text, const char* kind, std::string_view lane,
                const std::string& between, TraceFindings& findings) {
  std::vector<std::pair<std::vector<int>, std::string>> groups;
  for (const auto& [text, ranks] : by_text) groups.emplace_back(ranks, text);
  std::ranges::sort(groups);
  for (std::size_t i = 0; i < std::min(groups.size(), most_alike); ++i)
    findings.push_back({kind, groups[i].first,
                        base::list_of_ranks(groups[i].first) + between + groups[i].second, lane});
  if (groups.size() > most_alike)
    findings.push_back({"more", {}, fmt::format("{} more", groups.size() - most_alike), lane});
}

std::string text_of_verdict(const Dump& dump) {
  const DumpLine& verdict = dump.verdict;
  std::string text = verdict.text("code");
  if (verdict.has("culprits"))
    text += ", caused by " + base::list_of_ranks(verdict.ranks("culprits"));
  if (verdict.has("seen_by")) text += fmt::format(", seen by rank {}", verdict.rank("seen_by"));
  if (verdict.has("link")) text += " on " + verdict.text("link");
  if (const auto at = verdict.seconds("at"))
    text += " at " + format_utc(dump.time + static_cast<std::int64_t>(*at * 1e6));
  return verdict.has("cause") ? text + ": " + verdict.text("cause") : text;
}

std::string call_of_lane(const DumpLane& lane) {
  if (lane.line.has("call")) return lane.line.text("call");
  for (const auto& [number, call] : lane.calls)
    if (call.waits()) return fmt::format("#{} {}", number, describe(call));
  return {};
}

// The frames that ranks wait for.
void find_awaited(const Dumps& dumps, std::size_t lane, TraceFindings& findings) {
  RanksByText texts;
  for (const Dump& dump : dumps)
    for (const DumpLine& peer : dump.peers)
      if (peer.raw("lane") == dump_lanes[lane] && peer.has("expected") &&
          peer.raw("expected") != peer.raw("seen") &&
          contains(dump.lanes[lane].line.ranks("waits_for"), peer.rank("rank")))
        texts[fmt::format("{} from rank {}; {}{}", peer.text("expected"), peer.rank("rank"),
                          peer.has("seen") ? "last came " + peer.text("seen") : "none came yet",
                          peer.has("heard")
                              ? fmt::format(", {} before", format_seconds(-*peer.seconds("heard")))
                              : "")]
            .push_back(dump.rank);
  tell_alike(texts, "awaited", dump_lanes[lane], ": next is ", findings);
}

// When the ranks of one clock called and ended a collective.
struct Span {
  double last_call = -unbounded, first_end = unbounded;
};
using Spans = std::map<std::pair<std::size_t, std::int64_t>, Span>;

double seconds_between(const Dump& dump, const Dump& reference) {
  return static_cast<double>(dump.written.number("clock") - reference.written.number("clock")) *
         1e-9;
}

Spans spans_of(const std::vector<const Dump*>& dumps) {
  Spans spans;
  for (const Dump* dump : dumps)
    for (std::size_t lane = 0; lane < messages_lane; ++lane)
      for (const auto& [number, call] : dump->lanes[lane].calls) {
        // The root of a broadcast may end before others call it. Without `called`, `ended` is only
        // a lower bound.
        const auto operation = parse_collective(call.raw("name"));
        const auto called = call.seconds("called"), ended = call.seconds("ended");
        if (!called || !operation || base::traits_of(*operation).rooted()) continue;
        const double shift = seconds_between(*dump, *dumps.front());
        Span& span = spans[{lane, number}];
        span.last_call = std::max(span.last_call, *called + shift);
        if (ended && call.done()) span.first_end = std::min(span.first_end, *ended + shift);
      }
  return spans;
}

}  // namespace

void find_verdict(const Dumps& dumps, TraceFindings& findings) {
  const auto knows = [](const Dump& dump) {
    return dump.verdict.has("code") ? dump.heard.size() + 1 : 0;
  };
  const Dump& best = *std::ranges::max_element(dumps, {}, knows);
  if (knows(best) == 0) return;
  findings.push_back({"verdict", best.verdict.ranks("culprits"), text_of_verdict(best)});
  RanksByText heard, others;
  for (const DumpLine& line : best.heard) heard[line.text("text")].push_back(line.rank("rank"));
  tell_alike(heard, "heard", {}, fmt::format(", as rank {} heard: ", best.rank), findings);
  for (const Dump& dump : dumps)
    if (knows(dump) > 0 && (dump.verdict.raw("code") != best.verdict.raw("code") ||
                            dump.verdict.raw("culprits") != best.verdict.raw("culprits")))
      others[text_of_verdict(dump)].push_back(dump.rank);
  tell_alike(others, "other_verdict", {}, " wrote: ", findings);
}

void find_standing(const Dumps& dumps, TraceFindings& findings) {
  struct Group {
    std::vector<int> ranks, waits_for;
    double least = unbounded, most = 0;
  };
  for (std::size_t place = 0; place < dump_lanes.size(); ++place) {
    std::map<std::string, Group> groups;
    for (const Dump& dump : dumps) {
      const DumpLane& lane = dump.lanes[place];
      const std::string call = call_of_lane(lane);
      // Numbers of messages mean nothing to other ranks.
      const bool messages = place == messages_lane;
      if (messages ? call.empty() : lane.last() == 0) continue;
      std::string where = fmt::format("{} started, {} finished{}", lane.last(),
                                      lane.line.number("finished"), call.empty() ? "" : "; ");
      if (messages) where.clear();
      Group& group = groups[call.empty() ? where : where + "in " + call];
      group.ranks.push_back(dump.rank);
      for (const int rank : lane.line.ranks("waits_for")) group.waits_for.push_back(rank);
      const double waited = lane.line.seconds("waited").value_or(0);
      group.least = std::min(group.least, waited);
      group.most = std::max(group.most, waited);
    }
    RanksByText texts;
    for (const auto& [where, group] : groups) {
      std::string text = where;
      if (!group.waits_for.empty()) text += ", waits for " + base::list_of_ranks(group.waits_for);
      if (group.most > group.least)
        text += fmt::format(", {} to {}", format_seconds(group.least), format_seconds(group.most));
      else if (group.most > 0)
        text += ", " + format_seconds(group.most);
      texts[text] = group.ranks;
    }
    tell_alike(texts, "standing", dump_lanes[place], ": ", findings);
    find_awaited(dumps, place, findings);
  }
}

void find_late(const Dumps& dumps, TraceFindings& findings) {
  struct Late {
    std::set<std::pair<std::size_t, std::int64_t>> calls;
    double sum = 0, told = 0;
  };
  std::map<int, Late> by_rank;
  std::set<std::pair<std::size_t, std::int64_t>> all;
  for (const Dump& dump : dumps)
    for (std::size_t lane = 0; lane < messages_lane; ++lane)
      for (const auto& [number, call] : dump.lanes[lane].calls) {
        all.emplace(lane, number);
        const int last = call.rank("last");
        if (last < 0 || last == dump.rank) continue;
        Late& late = by_rank[last];
        late.calls.emplace(lane, number);
        late.sum += call.seconds("late").value_or(0);
        ++late.told;
      }
  std::vector<std::pair<int, const Late*>> order;
  for (const auto& [rank, late] : by_rank) order.emplace_back(rank, &late);
  std::ranges::stable_sort(order, std::greater<>(),
                           [](const auto& each) { return each.second->calls.size(); });
  for (std::size_t i = 0; i < std::min(order.size(), most_late); ++i) {
    const auto& [rank, late] = order[i];
    findings.push_back(
        {"late",
         {rank},
         fmt::format("rank {} was the last in {} of {} calls; others waited {} for it on average",
                     rank, late->calls.size(), all.size(),
                     format_seconds(late->sum / late->told))});
  }
}

std::vector<double> shifts_of_clocks(const Dumps& dumps, TraceFindings& findings) {
  std::map<std::string_view, std::vector<const Dump*>> clocks;
  for (const Dump& dump : dumps) clocks[dump.written.raw("clock_id")].push_back(&dump);
  const Dump& first = dumps.front();
  const auto& own = clocks[first.written.raw("clock_id")];
  const Spans reference = spans_of(own);
  std::vector<double> shifts(dumps.size());
  for (const auto& [id, members] : clocks) {
    double least = -unbounded, most = unbounded, shift = 0;
    for (const auto& [place, span] : spans_of(members)) {
      const auto same = reference.find(place);
      if (same == reference.end()) continue;
      least = std::max(least, same->second.last_call - span.first_end);
      most = std::min(most, same->second.first_end - span.last_call);
    }
    if (&members != &own) {
      const bool bounded = std::isfinite(least) && std::isfinite(most);
      shift = bounded ? (least + most) / 2
                      : static_cast<double>(members.front()->time - first.time) * 1e-6;
      std::vector<int> ranks;
      for (const Dump* dump : members) ranks.push_back(dump->rank);
      findings.push_back(
          {bounded ? "clock" : "wall_clock", ranks,
           fmt::format("the clock of {} is compared with that of rank {} by {}",
                       base::list_of_ranks(ranks), first.rank,
                       bounded ? fmt::format("calls, to within {}",
                                             format_seconds(std::abs(most - least) / 2))
                               : "the wall clocks, because no collective bounds the difference")});
    }
    for (const Dump* dump : members)
      shifts[static_cast<std::size_t>(dump - dumps.data())] =
          shift + seconds_between(*dump, *members.front());
  }
  return shifts;
}

}  // namespace rondo::tools
