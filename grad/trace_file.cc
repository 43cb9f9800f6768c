// SPDX-License-Identifier: Apache-2.0
#include "grad/trace_file.h"

#include <errno.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

namespace rondo::grad {

namespace {

using Json = nlohmann::json;

enum Kind { steps, queued, wire };
constexpr int most_tracks = 64;  // of one kind

int track_of(Kind kind, std::size_t index) {
  return static_cast<int>(kind) * most_tracks + static_cast<int>(index);
}

double microseconds(std::int64_t nanoseconds) {
  return static_cast<double>(nanoseconds) / 1000;
}

struct Span {
  std::int64_t from, to;
  const TracedBucket* bucket;
};

// Spans of one track must not overlap, so each takes the first free track.
class Tracks {
 public:
  std::size_t take(const Span& span) {
    const auto free = std::find_if(until_.begin(), until_.end(),
                                   [&](std::int64_t until) { return until <= span.from; });
    if (free == until_.end() && until_.size() < most_tracks) {
      until_.push_back(span.to);
      return until_.size() - 1;
    }
    const auto taken = free == until_.end() ? until_.end() - 1 : free;
    *taken = std::max(*taken, span.to);
    return static_cast<std::size_t>(taken - until_.begin());
  }
  std::size_t count() const noexcept { return until_.size(); }

 private:
  std::vector<std::int64_t> until_;
};

std::vector<Span> spans_of(const RankTrace& trace, Kind kind) {
  std::vector<Span> spans;
  for (const TracedBucket& each : trace.buckets) {
    const std::int64_t from = kind == queued ? each.ready : each.started;
    spans.push_back({from, std::max(from, kind == queued ? each.started : each.ended), &each});
  }
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& a, const Span& b) { return a.from < b.from; });
  return spans;
}

Json event_of(const Span& span, Kind kind, std::size_t track, int rank, int size) {
  const TracedBucket& bucket = *span.bucket;
  const double duration = microseconds(span.to) - microseconds(span.from);
  Json arguments{{"step", bucket.step}, {"bytes", bucket.bytes}};
  if (kind == wire && duration > 0)
    arguments["bus bandwidth, GB/s"] =
        static_cast<double>(bucket.bytes) * 2 * (size - 1) / size / duration / 1000;
  return {{"ph", "X"},
          {"name", fmt::format("bucket {}", bucket.bucket)},
          {"cat", kind == queued ? "queued" : "wire"},
          {"pid", rank},
          {"tid", track_of(kind, track)},
          {"ts", microseconds(span.from)},
          {"dur", duration},
          {"args", arguments}};
}

Json instant(const char* name, std::uint64_t step, std::int64_t at, int rank) {
  return {{"ph", "i"},
          {"s", "t"},
          {"name", name},
          {"pid", rank},
          {"tid", track_of(steps, 0)},
          {"ts", microseconds(at)},
          {"args", {{"step", step}}}};
}

// The time that communication has added to a step.
Json exposed_event(const TracedStep& step, int rank) {
  return {{"ph", "X"},
          {"name", "exposed"},
          {"cat", "exposed"},
          {"pid", rank},
          {"tid", track_of(steps, 0)},
          {"ts", microseconds(step.waited)},
          {"dur", microseconds(step.finished) - microseconds(step.waited)},
          {"args", {{"step", step.step}}}};
}

Json name_of_track(int rank, int track, const std::string& name) {
  return {{"ph", "M"},
          {"name", "thread_name"},
          {"pid", rank},
          {"tid", track},
          {"args", {{"name", name}}}};
}

}  // namespace

TraceFile::TraceFile(const std::string& path)
    : path_(path), temporary_(path + ".tmp"), file_(std::fopen(temporary_.c_str(), "w")) {
  if (!file_) failed("open");
  write("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [");
}

TraceFile::~TraceFile() {
  if (file_) std::remove(temporary_.c_str());
}

void TraceFile::failed(std::string_view doing, const std::string& rest) {
  const std::string reason = std::generic_category().message(errno);
  if (problem_.empty())
    problem_ = fmt::format("cannot {} {}{}: {}", doing, temporary_, rest, reason);
}

void TraceFile::write(const std::string& line) {
  if (problem_.empty() && std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size())
    failed("write to");
}

void TraceFile::add_rank(int rank, int size, const RankTrace& trace) {
  const auto put = [this](const Json& event) {
    write((first_ ? "\n" : ",\n") + event.dump());
    first_ = false;
  };
  const std::string name = rank == 0 ? "rank 0"
                                     : fmt::format("rank {} (clock within {:.1f} us)", rank,
                                                   microseconds(trace.clock_error));
  put({{"ph", "M"}, {"name", "process_name"}, {"pid", rank}, {"args", {{"name", name}}}});
  put({{"ph", "M"},
       {"name", "process_sort_index"},
       {"pid", rank},
       {"args", {{"sort_index", rank}}}});
  put(name_of_track(rank, track_of(steps, 0), "steps"));
  for (const TracedStep& each : trace.steps) {
    put(instant("begin_step", each.step, each.began, rank));
    put(exposed_event(each, rank));
    put(instant("finish", each.step, each.finished, rank));
  }
  for (const Kind kind : {queued, wire}) {
    Tracks tracks;
    for (const Span& span : spans_of(trace, kind))
      put(event_of(span, kind, tracks.take(span), rank, size));
    for (std::size_t i = 0; i < tracks.count(); ++i)
      put(name_of_track(rank, track_of(kind, i),
                        fmt::format("{}{}", kind == queued ? "queued" : "wire",
                                    i == 0 ? std::string() : fmt::format(" {}", i + 1))));
  }
}

std::string TraceFile::commit() {
  write("\n]}\n");
  if (file_ && std::fflush(file_.get()) != 0) failed("write to");
  if (problem_.empty() && std::rename(temporary_.c_str(), path_.c_str()) != 0)
    failed("rename", fmt::format(" to {}", path_));
  if (problem_.empty()) file_.reset();
  return problem_;
}

}  // namespace rondo::grad
