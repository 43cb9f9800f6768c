// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/text.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

// Of lines of one kind; more are counted.
constexpr std::size_t most_alike = 12, most_late = 5;

std::string text_of(const Dump& dump) {
  const DumpedVerdict& verdict = *dump.verdict;
  std::string text = verdict.code;
  if (!verdict.culprits.empty()) text += ", caused by " + base::list_of_ranks(verdict.culprits);
  if (verdict.seen_by) text += fmt::format(", seen by rank {}", *verdict.seen_by);
  if (!verdict.link.empty()) text += " on " + verdict.link;
  if (verdict.at)
    text += " at " + describe_time(dump.time + static_cast<std::int64_t>(*verdict.at * 1e6));
  return verdict.cause.empty() ? text : text + ": " + verdict.cause;
}

// Adds a finding for each text, with the ranks that have it.
void add_grouped(const std::map<std::string, std::vector<int>>& by_text, const char* kind,
                 std::string_view lane, std::string_view between, TraceFindings& findings) {
  std::vector<std::pair<std::string, std::vector<int>>> groups(by_text.begin(), by_text.end());
  std::ranges::stable_sort(groups, {}, [](const auto& group) { return group.second.front(); });
  for (std::size_t i = 0; i < groups.size() && i < most_alike; ++i)
    findings.push_back(
        {kind,
         groups[i].second,
         fmt::format("{}{}{}", base::list_of_ranks(groups[i].second), between, groups[i].first),
         std::string(lane),
         {}});
  if (groups.size() > most_alike)
    findings.push_back({"more",
                        {},
                        fmt::format("{} more groups of ranks", groups.size() - most_alike),
                        std::string(lane),
                        {}});
}

std::string call_of(const DumpedLane& lane) {
  if (!lane.call.empty()) return lane.call;
  for (const auto& [number, call] : lane.calls)
    if (call.waits()) return fmt::format("#{} {}", number, describe(call));
  return {};
}

void find_peers(const std::vector<Dump>& dumps, std::size_t lane, TraceFindings& findings) {
  std::map<std::string, std::vector<int>> texts;
  for (const Dump& dump : dumps)
    for (const DumpedPeer& peer : dump.peers)
      if (peer.lane == lane_names[lane] && !peer.expected.empty() && peer.expected != peer.seen &&
          std::ranges::count(dump.lanes[lane].waits_for, peer.rank) > 0)
        texts[fmt::format(
                  "{} from rank {}; the last that came is {}{}", peer.expected, peer.rank,
                  peer.seen.empty() ? "none" : peer.seen,
                  peer.heard ? fmt::format(", {} before", format_seconds(-*peer.heard)) : "")]
            .push_back(dump.rank);
  add_grouped(texts, "peer", lane_names[lane], ": awaits ", findings);
}

}  // namespace

void find_verdict(const std::vector<Dump>& dumps, TraceFindings& findings) {
  const Dump* best = nullptr;
  for (const Dump& dump : dumps)
    if (dump.verdict && (best == nullptr || dump.heard.size() > best->heard.size())) best = &dump;
  if (best == nullptr) return;
  findings.push_back({"verdict", best->verdict->culprits, text_of(*best), "", {}});
  std::map<std::string, std::vector<int>> heard, others;
  for (const auto& [rank, text] : best->heard) heard[text].push_back(rank);
  add_grouped(heard, "heard", "", fmt::format(", as rank {} heard: ", best->rank), findings);
  for (const Dump& dump : dumps)
    if (dump.verdict && (dump.verdict->code != best->verdict->code ||
                         dump.verdict->culprits != best->verdict->culprits))
      others[text_of(dump)].push_back(dump.rank);
  add_grouped(others, "other_verdict", "", " wrote: ", findings);
}

void find_standing(const std::vector<Dump>& dumps, TraceFindings& findings) {
  struct Group {
    std::vector<int> ranks, waits_for;
    double least = 1e9, most = 0;
  };
  for (std::size_t place = 0; place < lane_names.size(); ++place) {
    // Numbers of messages mean nothing to other ranks.
    std::map<std::tuple<std::uint64_t, std::uint64_t, std::string>, Group> groups;
    for (const Dump& dump : dumps) {
      const DumpedLane& lane = dump.lanes[place];
      if (lane.started == 0 && lane.calls.empty()) continue;
      Group& group = groups[{lane.last(), lane.finished, call_of(lane)}];
      group.ranks.push_back(dump.rank);
      group.waits_for.insert(group.waits_for.end(), lane.waits_for.begin(), lane.waits_for.end());
      group.least = std::min(group.least, lane.waited);
      group.most = std::max(group.most, lane.waited);
    }
    std::map<std::string, std::vector<int>> texts;
    for (const auto& [key, group] : groups) {
      const auto& [started, finished, call] = key;
      std::string text = fmt::format("{} started, {} finished", started, finished);
      if (!call.empty()) text += "; in " + call;
      if (!group.waits_for.empty()) text += ", waiting for " + base::list_of_ranks(group.waits_for);
      if (group.most > 0)
        text += group.least == group.most || group.ranks.size() == 1
                    ? " for " + format_seconds(group.most)
                    : fmt::format(" for {} to {}", format_seconds(group.least),
                                  format_seconds(group.most));
      texts[text] = group.ranks;
    }
    add_grouped(texts, "standing", lane_names[place], ": ", findings);
    find_peers(dumps, place, findings);
  }
}

void find_late(const std::vector<Dump>& dumps, TraceFindings& findings) {
  struct Late {
    std::set<std::pair<std::size_t, std::uint64_t>> calls;
    double sum = 0;
    std::uint64_t told = 0;
  };
  std::map<int, Late> by_rank;
  std::set<std::pair<std::size_t, std::uint64_t>> all;
  for (const Dump& dump : dumps)
    for (std::size_t lane = 0; lane < messages_lane; ++lane)
      for (const auto& [number, call] : dump.lanes[lane].calls) {
        all.emplace(lane, number);
        if (!call.last || *call.last == dump.rank) continue;
        Late& late = by_rank[*call.last];
        late.calls.emplace(lane, number);
        late.sum += call.late;
        ++late.told;
      }
  std::vector<std::pair<int, const Late*>> order;
  for (const auto& [rank, late] : by_rank) order.emplace_back(rank, &late);
  std::ranges::stable_sort(order, std::greater<>(),
                           [](const auto& each) { return each.second->calls.size(); });
  if (order.size() > most_late) order.resize(most_late);
  for (const auto& [rank, late] : order)
    findings.push_back(
        {"late",
         {rank},
         fmt::format("rank {} was last in {} of {} calls; others waited for it {} on average", rank,
                     late->calls.size(), all.size(),
                     format_seconds(late->sum / static_cast<double>(late->told))),
         "",
         {}});
}

}  // namespace rondo::tools
