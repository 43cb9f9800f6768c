// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "base/text.h"
#include "base/traits.h"
#include "tools/shared/text.h"
#include "tools/trace/findings.h"

namespace rondo::tools {
namespace {

constexpr double no_bound = std::numeric_limits<double>::infinity();

// Systems without an identity of clocks have one for each rank.
std::string clock_of(const Dump& dump) {
  return dump.written.has("clock_id") ? dump.written.text("clock_id") : std::to_string(dump.rank);
}

// When the ranks of one clock called and ended a collective.
struct Span {
  double last_call = -no_bound, first_end = no_bound;
};
using Spans = std::map<std::pair<std::size_t, std::int64_t>, Span>;

// Whether no rank can end it before all have called it. Without `called`, `ended` is only a lower
// bound.
bool needs_all(const DumpCall& call) {
  const auto operation = parse_collective(call.raw("name"));
  if (!operation || !call.has("called") || call.number("count", 1) == 0) return false;
  const base::Traits& traits = base::traits_of(*operation);
  return !traits.rooted() && !traits.has_counts() && !traits.messages;
}

Spans spans_of(const std::vector<Dump*>& dumps) {
  Spans spans;
  for (const Dump* dump : dumps)
    for (std::size_t lane = 0; lane < messages_lane; ++lane)
      for (const auto& [number, call] : dump->lanes[lane].calls) {
        if (!needs_all(call)) continue;
        Span& span = spans[{lane, number}];
        span.last_call = std::max(span.last_call, call.begin() + dump->shift);
        if (const auto ended = call.seconds("ended"); ended && call.done())
          span.first_end = std::min(span.first_end, *ended + dump->shift);
      }
  return spans;
}

// The bounds of the offset that each call of both clocks leaves, the latest call first.
std::multimap<double, std::pair<double, double>, std::greater<>> bounds_of(const Spans& reference,
                                                                           const Spans& spans) {
  std::multimap<double, std::pair<double, double>, std::greater<>> bounds;
  for (const auto& [place, span] : spans)
    if (const auto same = reference.find(place); same != reference.end())
      bounds.emplace(span.last_call, std::pair(same->second.last_call - span.first_end,
                                               same->second.first_end - span.last_call));
  return bounds;
}

}  // namespace

double waited(const Dump& dump, const DumpCall& call, const Dump& other) {
  const auto called = call.seconds("called");
  const bool others = call.raw("state") != "memory" && call.raw("state") != "stream";
  if (!called || call.done() || !others) return 0;
  const double failed = call.waits() ? 0 : call.seconds("ended").value_or(*called);
  const double doubt = clock_of(dump) == clock_of(other) ? 0 : dump.doubt + other.doubt;
  return std::min(other.shift, dump.shift + failed) - dump.shift - *called - doubt;
}

void set_clocks(Dumps& dumps, TraceFindings& findings) {
  const Dump& first = dumps.front();
  std::map<std::string, std::vector<Dump*>> clocks;
  for (Dump& dump : dumps) {
    auto& members = clocks[clock_of(dump)];
    members.push_back(&dump);
    dump.shift = static_cast<double>(dump.written.number("clock") -
                                     members.front()->written.number("clock")) *
                 1e-9;
  }
  const Spans reference = spans_of(clocks[clock_of(first)]);
  for (const auto& [id, members] : clocks) {
    if (members.front() == &first) continue;
    double least = -no_bound, most = no_bound;
    for (const auto& [time, bounds] : bounds_of(reference, spans_of(members))) {
      const double low = std::max(least, bounds.first), high = std::min(most, bounds.second);
      if (low > high) break;  // the clocks do not run alike; later calls say more
      least = low;
      most = high;
    }
    const bool bounded = least > -no_bound && most < no_bound;
    const double wall = static_cast<double>(members.front()->time - first.time) * 1e-6;
    std::vector<int> ranks;
    for (Dump* dump : members) {
      dump->shift += bounded ? (least + most) / 2 : wall;
      dump->doubt = bounded ? (most - least) / 2 : 0;
      ranks.push_back(dump->rank);
    }
    const std::string how =
        bounded ? fmt::format("calls, to within {}", format_seconds((most - least) / 2))
                : "the wall clocks, because no collective bounds the difference";
    findings.push_back({bounded ? "clock" : "wall_clock", ranks,
                        fmt::format("the clock of {} is compared with that of rank {} by {}",
                                    base::list_of_ranks(ranks), first.rank, how)});
  }
}

}  // namespace rondo::tools
