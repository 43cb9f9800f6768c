// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "tools/trace/exports.h"

namespace rondo::tools {
namespace {

constexpr int tracks_of_lane = 1000;

Json arguments_of(const DumpedCall& call) {
  Json json{{"number", call.number}, {"bytes", call.bytes}, {"state", call.state}};
  if (!call.tag.empty()) json["tag"] = call.tag;
  for (std::size_t i = 1; i < signature_names.size(); ++i)
    if (!call.signature[i].empty()) json[std::string(signature_names[i])] = call.signature[i];
  if (call.peer) json["peer"] = *call.peer;
  if (call.last) json["last"] = *call.last, json["late_us"] = rounded(call.late * 1e6, 1e3);
  return json;
}

Json name_event(const char* kind, int process, int track, const std::string& name) {
  return {
      {"ph", "M"}, {"name", kind}, {"pid", process}, {"tid", track}, {"args", {{"name", name}}}};
}

class Events {
 public:
  Events(const Dump& dump, double shift, double start, Json& events)
      : dump_(dump), process_(dump.rank + 1), shift_(shift - start), events_(events) {
    events_.push_back(
        name_event("process_name", process_, 0, fmt::format("rank {} {}", dump.rank, dump.host)));
    for (std::size_t lane = 0; lane < lane_names.size(); ++lane) add_lane(lane);
  }

 private:
  double microseconds(double time) const { return rounded((time + shift_) * 1e6, 1e3); }

  void add_lane(std::size_t lane) {
    std::vector<const DumpedCall*> calls;
    for (const auto& each : dump_.lanes[lane].calls)
      if (each.second.called || each.second.ended) calls.push_back(&each.second);
    std::ranges::stable_sort(calls, {}, [](const DumpedCall* call) {
      return call->called.value_or(call->ended.value_or(0));
    });
    std::vector<double> ends;  // by track: when its last call ends
    for (const DumpedCall* call : calls) add(*call, lane, ends);
    for (std::size_t track = 0; track < ends.size(); ++track)
      events_.push_back(name_event("thread_name", process_, track_of(lane, track),
                                   track == 0 ? std::string(lane_names[lane])
                                              : fmt::format("{} {}", lane_names[lane], track + 1)));
  }

  static int track_of(std::size_t lane, std::size_t track) {
    return static_cast<int>(lane + 1) * tracks_of_lane + static_cast<int>(track);
  }

  void add(const DumpedCall& call, std::size_t lane, std::vector<double>& ends) {
    const double begin = call.called.value_or(call.ended.value_or(0));
    const double end = std::max(begin, call.ended.value_or(0));
    auto track = std::ranges::find_if(ends, [&](double last) { return last <= begin; });
    if (track == ends.end()) {
      if (ends.size() == tracks_of_lane) return;
      track = ends.insert(ends.end(), end);
    }
    *track = end;
    Json event{{"name", call.tag.empty() ? call.name() : call.name() + " " + call.tag},
               {"cat", lane_names[lane]},
               {"ph", call.called ? "X" : "i"},
               {"pid", process_},
               {"tid", track_of(lane, static_cast<std::size_t>(track - ends.begin()))},
               {"ts", microseconds(begin)},
               {"args", arguments_of(call)}};
    if (call.called)
      event["dur"] = rounded((end - begin) * 1e6, 1e3);
    else
      event["s"] = "t";
    events_.push_back(std::move(event));
  }

  const Dump& dump_;
  const int process_;
  const double shift_;
  Json& events_;
};

}  // namespace

std::string trace_events(const std::vector<Dump>& dumps, const CommonClock& clock) {
  double start = 0;
  for (std::size_t i = 0; i < dumps.size(); ++i)
    for (const DumpedLane& lane : dumps[i].lanes)
      for (const auto& [number, call] : lane.calls)
        start = std::min(start, call.called.value_or(call.ended.value_or(0)) + clock.shift[i]);
  Json events = Json::array();
  for (std::size_t i = 0; i < dumps.size(); ++i) Events(dumps[i], clock.shift[i], start, events);
  return write_line({{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}) + "\n";
}

}  // namespace rondo::tools
