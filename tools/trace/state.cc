// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <tuple>

#include "base/text.h"
#include "tools/shared/lists.h"
#include "tools/shared/text.h"
#include "tools/trace/findings.h"

namespace rondo::tools {
namespace {

using RanksByText = std::map<std::string, std::vector<int>>;

constexpr std::size_t most_alike = 12, most_late = 5;
// Several ranks may come last; their times differ little.
constexpr double alike = 0.9;
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
  if (groups.size() <= most_alike) return;
  std::vector<int> others;
  for (std::size_t i = most_alike; i < groups.size(); ++i)
    others.insert(others.end(), groups[i].first.begin(), groups[i].first.end());
  findings.push_back(
      {"more", others,
       fmt::format("{} more, of {}", groups.size() - most_alike, base::list_of_ranks(others)),
       lane});
}

std::string text_of_verdict(const Dump& dump) {
  const DumpLine& verdict = dump.verdict;
  std::string text = verdict.text("code");
  if (const std::vector<int> culprits = verdict.ranks("culprits"); !culprits.empty())
    text += ", caused by " + base::list_of_ranks(culprits);
  if (verdict.has("seen_by")) text += fmt::format(", seen by rank {}", verdict.rank("seen_by"));
  if (verdict.has("link")) text += " on " + verdict.text("link");
  if (const auto at = verdict.seconds("at"))
    text += " at " + base::format_utc(dump.time + static_cast<std::int64_t>(*at * 1e6));
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
  for (const Dump& dump : dumps) {
    const std::vector<int> ranks = dump.lanes[lane].line.ranks("waits_for");
    const std::set<int> awaited(ranks.begin(), ranks.end());
    for (const DumpLine& peer : dump.peers) {
      if (peer.raw("lane") != dump_lanes[lane] || !peer.has("expected") ||
          peer.raw("expected") == peer.raw("seen") || !awaited.contains(peer.rank("rank")))
        continue;
      const auto heard = peer.seconds("heard");
      texts[fmt::format("{} from rank {}; {}{}", peer.text("expected"), peer.rank("rank"),
                        peer.has("seen") ? "last came " + peer.text("seen") : "none came yet",
                        heard ? fmt::format(", {} before", format_seconds(-*heard)) : "")]
          .push_back(dump.rank);
    }
  }
  tell_alike(texts, "awaited", dump_lanes[lane], ": next is ", findings);
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
    std::vector<int> ranks, waits_for = {};
    bool alike = true;  // all wait for the same ranks
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
      std::string where;
      if (!messages)
        where = fmt::format("{} started, {} finished", lane.last(), lane.line.number("finished"));
      if (!call.empty()) where += (messages ? "in " : "; in ") + call;
      Group& group = groups[where];
      const std::vector<int> awaited = lane.line.ranks("waits_for");
      if (!group.ranks.empty() && awaited != group.waits_for) group.alike = false;
      if (group.ranks.empty() || !group.alike)
        group.waits_for.insert(group.waits_for.end(), awaited.begin(), awaited.end());
      group.ranks.push_back(dump.rank);
      const double waited = lane.line.seconds("waited").value_or(0);
      group.least = std::min(group.least, waited);
      group.most = std::max(group.most, waited);
    }
    RanksByText texts;
    for (const auto& [where, group] : groups) {
      std::string text = where;
      if (!group.waits_for.empty())
        text += fmt::format(", {} {}", group.alike ? "waits for" : "each may wait for",
                            base::list_of_ranks(group.waits_for));
      const std::string least = format_seconds(group.least), most = format_seconds(group.most);
      if (group.most > 0)
        text += least == most ? fmt::format(", {}", most) : fmt::format(", {} to {}", least, most);
      texts[text] = group.ranks;
    }
    tell_alike(texts, "standing", dump_lanes[place], ": ", findings);
    if (place != messages_lane) find_awaited(dumps, place, findings);
  }
}

void find_late(const Dumps& dumps, TraceFindings& findings) {
  // By call and rank: how long others waited for the rank, less how long it waited itself.
  struct Waits {
    std::map<int, double> others, own;
  };
  std::map<std::pair<std::size_t, std::int64_t>, Waits> calls;
  const auto add = [&](Waits& waits, const Dump& dump, int rank, double time) {
    if (rank < 0 || rank == dump.rank) return;
    double &other = waits.others[rank], &own = waits.own[dump.rank];
    other = std::max(other, time);
    own = std::max(own, time);
  };
  for (const Dump& dump : dumps)
    for (std::size_t place = 0; place < messages_lane; ++place) {
      const DumpLane& lane = dump.lanes[place];
      for (const auto& [number, call] : lane.calls)
        add(calls[{place, number}], dump, call.rank("last"), call.seconds("late").value_or(0));
      for (const int rank : lane.line.ranks("waits_for"))  // in the call under way
        add(calls[{place, lane.line.number("finished") + 1}], dump, rank,
            lane.line.seconds("waited").value_or(0));
    }
  std::map<int, std::pair<std::size_t, double>> late;  // calls and seconds
  for (const auto& [place, waits] : calls) {
    std::map<int, double> net = waits.others;
    for (auto& [rank, time] : net)
      if (const auto own = waits.own.find(rank); own != waits.own.end()) time -= own->second;
    double most = 0;
    for (const auto& [rank, time] : net) most = std::max(most, time);
    for (const auto& [rank, time] : net) {
      if (time <= 0 || time < alike * most) continue;
      ++late[rank].first;
      late[rank].second += time;
    }
  }
  std::vector<std::tuple<double, int, std::size_t>> order;
  order.reserve(late.size());
  for (const auto& [rank, sums] : late) order.emplace_back(-sums.second, rank, sums.first);
  std::ranges::sort(order);
  order.resize(std::min(order.size(), most_late));
  for (const auto& [sum, rank, count] : order)
    findings.push_back({"late",
                        {rank},
                        fmt::format("rank {} was the last in {} of {} calls; others waited {} for "
                                    "it in all",
                                    rank, count, calls.size(), format_seconds(-sum))});
}

}  // namespace rondo::tools
