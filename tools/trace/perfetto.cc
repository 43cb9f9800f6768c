// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "tools/trace/findings.h"

namespace rondo::tools {
namespace {

// More overlapping calls of a lane are left out.
constexpr std::size_t most_tracks = 1000;

Json arguments_of(const DumpCall& call) {
  Json json{{"number", call.number("number")}, {"bytes", call.number("bytes")}};
  for (const char* name :
       {"tag", "type", "count", "op", "root", "algorithm", "state", "peer", "key", "last", "late"})
    if (call.has(name)) json[name] = call.text(name);
  return json;
}

void name_track(const char* kind, const Dump& dump, std::size_t track, const std::string& name,
                Json& events) {
  events.push_back({{"ph", "M"},
                    {"name", kind},
                    {"pid", dump.rank + 1},
                    {"tid", track},
                    {"args", {{"name", name}}}});
}

// start: when the trace begins.
void add_lane(const Dump& dump, std::size_t lane, double start, Json& events) {
  std::vector<const DumpCall*> calls;
  for (const auto& each : dump.lanes[lane].calls)
    if (each.second.has("called") || each.second.has("ended")) calls.push_back(&each.second);
  std::ranges::stable_sort(calls, {}, &DumpCall::begin);
  std::vector<double> ends;  // by track: when its last call ends
  for (const DumpCall* call : calls) {
    const double begin = call->begin(), end = std::max(begin, call->seconds("ended").value_or(0));
    const auto track = static_cast<std::size_t>(
        std::ranges::find_if(ends, [&](double last) { return last <= begin; }) - ends.begin());
    if (track == most_tracks) continue;
    ends.resize(std::max(ends.size(), track + 1));
    ends[track] = end;
    const bool whole = call->has("called");
    Json event{{"name", call->text("name") + (call->has("tag") ? " " + call->text("tag") : "")},
               {"cat", dump_lanes[lane]},
               {"ph", whole ? "X" : "i"},
               {"pid", dump.rank + 1},
               {"tid", (lane + 1) * most_tracks + track},
               {"ts", rounded((begin + dump.shift - start) * 1e6, 1e3)},
               {"args", arguments_of(*call)}};
    if (whole)
      event["dur"] = rounded((end - begin) * 1e6, 1e3);
    else
      event["s"] = "t";
    events.push_back(std::move(event));
  }
  for (std::size_t track = 0; track < ends.size(); ++track)
    name_track("thread_name", dump, (lane + 1) * most_tracks + track,
               std::string(dump_lanes[lane]) + (track == 0 ? "" : fmt::format(" {}", track + 1)),
               events);
}

}  // namespace

std::string trace_events(const Dumps& dumps) {
  double start = 0;
  for (const Dump& dump : dumps)
    for (const DumpLane& lane : dump.lanes)
      for (const auto& [number, call] : lane.calls)
        start = std::min(start, call.begin() + dump.shift);
  Json events = Json::array();
  for (const Dump& dump : dumps) {
    name_track("process_name", dump, 0,
               fmt::format("rank {} {}", dump.rank, dump.written.text("host")), events);
    for (std::size_t lane = 0; lane < dump_lanes.size(); ++lane)
      add_lane(dump, lane, start, events);
  }
  return write_line({{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}) + "\n";
}

}  // namespace rondo::tools
