// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/clocks.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/text.h"
#include "base/traits.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

double seconds_between(const Dump& dump, const Dump& reference) {
  return static_cast<double>(dump.clock - reference.clock) * 1e-9;
}

// The root of a broadcast may end before others call it, so such operations bound nothing.
bool needs_all(const std::string& name) {
  const auto operation = parse_collective(name);
  if (!operation) return false;
  const base::Traits& traits = base::traits_of(*operation);
  return !traits.messages && !traits.rooted();
}

// When the ranks of one clock called and ended a collective.
struct Span {
  double last_call = -infinite, first_end = infinite;
};
using Spans = std::map<std::pair<std::size_t, std::uint64_t>, Span>;

Spans spans_of(const std::vector<const Dump*>& dumps) {
  Spans spans;
  for (const Dump* dump : dumps) {
    const double shift = seconds_between(*dump, *dumps.front());
    for (std::size_t lane = 0; lane < messages_lane; ++lane)
      for (const auto& [number, call] : dump->lanes[lane].calls) {
        // Without `called`, `ended` is only a lower bound of the end.
        if (!call.called || !needs_all(call.name())) continue;
        Span& span = spans[{lane, number}];
        span.last_call = std::max(span.last_call, *call.called + shift);
        if (call.ended && call.done())
          span.first_end = std::min(span.first_end, *call.ended + shift);
      }
  }
  return spans;
}

}  // namespace

CommonClock::CommonClock(const std::vector<Dump>& dumps, TraceFindings& findings) {
  std::map<std::string, std::vector<const Dump*>> clocks;
  for (const Dump& dump : dumps) clocks[dump.clock_id].push_back(&dump);
  const Dump& first = dumps.front();
  const Spans reference = spans_of(clocks[first.clock_id]);
  std::map<std::string, double> shifts{{first.clock_id, 0}};
  for (const auto& [id, members] : clocks) {
    if (id == first.clock_id) continue;
    double least = -infinite, most = infinite;
    for (const auto& [place, span] : spans_of(members)) {
      const auto same = reference.find(place);
      if (same == reference.end()) continue;
      least = std::max(least, same->second.last_call - span.first_end);
      most = std::min(most, same->second.first_end - span.last_call);
    }
    const bool bounded = std::isfinite(least) && std::isfinite(most);
    const double wall = static_cast<double>(members.front()->time - first.time) * 1e-6;
    shifts[id] = bounded ? (least + most) / 2 : wall;
    std::vector<int> ranks;
    for (const Dump* dump : members) ranks.push_back(dump->rank);
    std::string text = fmt::format("the clock of {} is ", base::list_of_ranks(ranks));
    text += bounded ? fmt::format("compared with that of rank {} by the calls, to +-{}", first.rank,
                                  format_seconds(std::abs(most - least) / 2))
                    : fmt::format(
                          "compared with that of rank {} by the wall clocks: no finished "
                          "collective of both tells more",
                          first.rank);
    if (bounded && most < least) text += "; the calls contradict each other by as much";
    findings.push_back({bounded ? "clock" : "wall_clock", ranks, std::move(text), "", {}});
  }
  for (const Dump& dump : dumps)
    shift.push_back(shifts[dump.clock_id] + seconds_between(dump, *clocks[dump.clock_id].front()));
  const double start = shift.front();
  for (double& each : shift) each -= start;
}

}  // namespace rondo::tools
