// SPDX-License-Identifier: Apache-2.0
//
// dump    = "rondo dump 1" LF { line LF } "end lines=" number LF
//           ; number: of the lines between the first and the last. Without a valid last line the
//           ; file is cut.
// line    = word { SP name "=" value }       ; a reader ignores words and names it does not know
// value   = plain | quoted
// plain   = 1*( "!" to "~" without '"' )
// quoted  = '"' { char | '\\' | '\"' } '"'   ; char: printable UTF-8
//
// docs/recorder.md lists words and names. A field whose value is not known is left out. Times are
// seconds of this rank's steady clock since `clock` of the line `written`.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <type_traits>

#include <rondo/version.h>

#include "base/process.h"
#include "base/text.h"
#include "lib/recorder/dump.h"

namespace rondo::recorder {
namespace {

constexpr std::size_t most_bytes = std::size_t{4} << 20, room_for_the_rest = std::size_t{1} << 20;
constexpr std::array<std::string_view, 12> codes{
    "none",           "invalid_argument", "mismatch",    "deadline_exceeded",
    "peer_lost",      "peer_left",        "aborted",     "rendezvous",
    "authentication", "corrupt",          "unsupported", "system"};
constexpr std::array<std::string_view, 3> lanes{"bulk", "urgent", "messages"};
constexpr std::array<std::string_view, 6> states{"memory", "stream", "ranks",
                                                 "moving", "done",   "failed"};
constexpr std::array<std::string_view, 4> reasons{"failure", "slow", "call", "signal"};

// Adds lines to a text, field by field.
class Lines {
 public:
  explicit Lines(base::TimePoint now) : now_(now) {}

  Lines& line(std::string_view word) {
    if (count_++ != 0 || !text_.empty()) text_ += '\n';
    text_ += word;
    return *this;
  }
  template <class Value>
  Lines& plain(std::string_view name, const Value& value) {
    fmt::format_to(std::back_inserter(text_), " {}={}", name, value);
    return *this;
  }
  Lines& quoted(std::string_view name, std::string_view value) {
    if (value.empty()) return *this;
    fmt::format_to(std::back_inserter(text_), " {}=\"", name);
    for (const char c : base::printable(std::string(value))) {
      if (c == '"' || c == '\\') text_ += '\\';
      text_ += c;
    }
    text_ += '"';
    return *this;
  }
  Lines& time(std::string_view name, base::TimePoint when) {
    return when == base::TimePoint{} ? *this : span(name, when - now_);
  }
  Lines& span(std::string_view name, nanoseconds time) {
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
    fmt::format_to(std::back_inserter(text_), " {}={}{}.{:06}", name, us < 0 ? "-" : "",
                   (us < 0 ? -us : us) / 1'000'000, (us < 0 ? -us : us) % 1'000'000);
    return *this;
  }
  Lines& ranks(std::string_view name, const std::vector<int>& ranks) {
    return ranks.empty() ? *this : plain(name, base::join(ranks, ","));
  }
  bool is_full() const noexcept { return text_.size() > most_bytes - room_for_the_rest; }
  bool is_overfull() const noexcept { return text_.size() > most_bytes - 4096; }
  std::string end() {
    const std::size_t lines = count_;
    return std::move(line("end").plain("lines", lines).text_) + "\n";
  }

 private:
  const base::TimePoint now_;
  std::string text_ = "rondo dump 1";
  std::size_t count_ = 0;
};

void add_verdict(Lines& lines, const operation::Failure& failure, base::TimePoint at) {
  const auto code = static_cast<std::size_t>(failure.code);
  lines.line("verdict").plain("code", codes[code < codes.size() ? code : 0]);
  if (failure.seen_by >= 0) lines.plain("seen_by", failure.seen_by);
  lines.ranks("culprits", failure.culprits).time("at", at);
  lines.quoted("link", failure.link).quoted("cause", failure.cause);
}

void add_lane(Lines& lines, std::string_view name, const operation::LaneStatus& lane) {
  lines.line("lane").plain("lane", name).plain("started", lane.started);
  lines.plain("finished", lane.finished).ranks("waits_for", lane.waiting_for);
  if (lane.current.empty()) return;
  lines.span("waited", nanoseconds(static_cast<std::int64_t>(lane.waited_ns)));
  lines.quoted("device", lane.device).quoted("call", lane.current);
}

void add_peer(Lines& lines, const operation::PeerView& peer, const Job& job) {
  const auto rank = static_cast<std::size_t>(peer.rank);
  lines.line("peer").plain("lane", lanes[static_cast<std::size_t>(peer.lane)]);
  lines.plain("rank", peer.rank);
  if (rank < job.transports.size()) lines.plain("transport", job.transports[rank]);
  lines.quoted("address", peer.address).quoted("expected", peer.expected);
  lines.quoted("seen", peer.seen);
  if (peer.address.empty()) return;  // no link counts these
  lines.plain("bytes", peer.bytes).plain("queued", peer.queued).time("heard", peer.heard);
}

void add_call(Lines& lines, const operation::Record& record) {
  const schedules::Signature& call = record.signature;
  lines.plain("type", name_of(call.type)).plain("count", call.count);
  if (record.lane == transports::Lane::messages) {
    lines.plain("peer", static_cast<int>(call.root)).plain("key", call.plan);
  } else {
    if (schedules::is_reducing(call.operation)) {
      lines.plain("op", name_of(call.op));
      if (call.scale != 1) lines.plain("scale", call.scale);
    }
    if (schedules::has_root(call.operation)) lines.plain("root", call.root);
    lines.plain("algorithm", schedules::name_of(call.algorithm));
    lines.plain("plan", fmt::format("{:016x}", call.plan));
  }
  if (call.on_device) lines.plain("device", 1);
}

void add_operation(Lines& lines, const operation::Record& record) {
  lines.line("op").plain("lane", lanes[static_cast<std::size_t>(record.lane)]);
  lines.plain("number", record.number)
      .plain("state", states[static_cast<std::size_t>(record.state)]);
  lines.plain("name", record.batch ? "batch" : name_of(record.signature.operation));
  add_call(lines, record);
  lines.quoted("tag", record.tag).plain("bytes", record.bytes);
  const operation::OperationTimes& times = record.times;
  // A look may be older than the call that it is noted for.
  const auto after_call = [&](base::TimePoint when) {
    return when == base::TimePoint{} ? when : std::max(when, times.called);
  };
  lines.time("called", times.called);
  if (times.called != base::TimePoint{})
    lines.time("sent", after_call(times.sent)).time("arrived", after_call(times.arrived));
  lines.time("copied", times.copied)
      .time("stored", times.stored)
      .time("ended", after_call(record.ended));
  if (times.last >= 0) lines.plain("last", times.last).span("late", times.late);
}

}  // namespace

std::string_view name_of(Why why) noexcept {
  return reasons[static_cast<std::size_t>(why)];
}

std::string text_of(const engine::Snapshot& seen, Why why, const Job& job, const Heard& heard,
                    std::int64_t wall_ns) {
  Lines lines(seen.now);
  lines.line("written").plain("why", name_of(why));
  lines.plain("rank", job.rank).plain("size", job.size).quoted("group", job.group);
  lines.plain("job", fmt::format("{:016x}", job.number)).quoted("host", base::host_name());
  lines.plain("process", ::getpid()).plain("version", version());
  lines.quoted("transport", job.transport).plain("time", base::format_utc(wall_ns / 1000));
  lines.plain("clock", seen.now.time_since_epoch().count());
  lines.quoted("clock_id", base::clock_identity());
  if (seen.failure) add_verdict(lines, *seen.failure, seen.failed);
  for (const auto& [rank, text] : heard)
    if (!lines.is_full()) lines.line("heard").plain("rank", rank).quoted("text", text);
  for (std::size_t lane = 0; lane < lane_count; ++lane)
    add_lane(lines, lanes[lane], seen.status.lanes[lane]);
  add_lane(lines, lanes.back(), seen.status.messages);
  for (const auto& [name, value] : job.settings)
    lines.line("setting").plain("name", name).quoted("value", value);
  for (const operation::PeerView& peer : seen.peers)
    if (!lines.is_full()) add_peer(lines, peer, job);
  for (std::size_t rank = 0; rank < job.hosts.size() && !lines.is_full(); ++rank)
    lines.line("member").plain("rank", rank).quoted("host", job.hosts[rank]);
  for (const operation::Record& record : seen.records)
    if (!lines.is_overfull()) add_operation(lines, record);
  return lines.end();
}

}  // namespace rondo::recorder
