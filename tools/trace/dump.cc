// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <initializer_list>

#include "base/text.h"
#include "tools/shared/lists.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

constexpr std::string_view dump_begin = "rondo dump 1\n";
// They bound what an invalid file can cost.
constexpr std::size_t most_dump_lines = 1 << 16, most_dump_fields = 64;
constexpr std::int64_t most_rank = 1'000'000, most_dump_number = std::int64_t{1} << 62;
constexpr double most_dump_seconds = 1e9;

constexpr std::array<std::string_view, 9> time_fields{"at",     "called", "sent",   "ended", "late",
                                                      "waited", "heard",  "copied", "stored"};
constexpr std::array<std::string_view, 6> rank_fields{"rank",    "size", "root",
                                                      "seen_by", "last", "peer"};
constexpr std::array<std::string_view, 6> number_fields{"number",  "count",    "bytes",
                                                        "started", "finished", "clock"};

bool is_rank_of_dump(std::string_view text) {
  const auto rank = base::parse_whole<std::int64_t>(text);
  return rank && *rank >= -1 && *rank <= most_rank;
}

bool is_valid_field(std::string_view name, std::string_view value) {
  if (contains(rank_fields, name)) return is_rank_of_dump(value);
  if (name == "culprits" || name == "waits_for")
    return std::ranges::all_of(base::split(value, ','), is_rank_of_dump);
  if (contains(time_fields, name)) {
    const auto time = base::parse_whole<double>(value);
    return time && std::abs(*time) <= most_dump_seconds;  // not a NaN
  }
  if (!contains(number_fields, name)) return true;
  const auto number = base::parse_whole<std::int64_t>(value);
  return number && *number >= 0 && *number <= most_dump_number;
}

// The length of the value with which the text begins; 0 if it is invalid.
std::size_t value_length(std::string_view text) {
  if (!text.starts_with('"')) {
    const auto length = std::min(text.size(), text.find(' '));
    return text.substr(0, length).find('"') == text.npos ? length : 0;
  }
  for (std::size_t i = 1; i < text.size(); ++i)
    if (text[i] == '\\')
      ++i;
    else if (text[i] == '"')
      return i + 1;
  return 0;
}

bool has_all(const DumpLine& line, std::initializer_list<std::string_view> names) {
  return std::ranges::all_of(names, [&](std::string_view name) { return line.has(name); });
}

std::optional<std::int64_t> parse_utc(std::string_view text) {
  if (text.size() != 27) return {};
  std::array<unsigned, 7> parts{};
  for (std::size_t i = 0, at = 0; i < parts.size(); ++i) {
    const std::size_t length = i == 0 ? 4 : i == 6 ? 6 : 2;
    const auto part = base::parse_whole<unsigned>(text.substr(at, length));
    if (!part || text[at + length] != "--T::.Z"[i]) return {};
    parts[i] = *part;
    at += length + 1;
  }
  using namespace std::chrono;
  const year_month_day date{year(static_cast<int>(parts[0])), month(parts[1]), day(parts[2])};
  if (!date.ok()) return {};
  const auto time = sys_days(date).time_since_epoch() + hours(parts[3]) + minutes(parts[4]) +
                    seconds(parts[5]) + microseconds(parts[6]);
  return microseconds(time).count();
}

bool take_written(DumpLine line, Dump& dump) {
  const auto time = parse_utc(line.raw("time"));
  if (!time || !has_all(line, {"job", "clock", "clock_id"}) || line.rank("rank") < 0 ||
      line.rank("size") <= line.rank("rank"))
    return false;
  dump.time = *time;
  dump.rank = line.rank("rank");
  dump.written = std::move(line);
  return true;
}

bool take_of_lane(DumpLine line, Dump& dump) {
  const auto found = std::ranges::find(dump_lanes, line.raw("lane"));
  if (found == dump_lanes.end()) return false;
  DumpLane& lane = dump.lanes[static_cast<std::size_t>(found - dump_lanes.begin())];
  if (line.word() == "lane") return lane.line = std::move(line), true;
  if (!has_all(line, {"number", "name", "state"})) return false;
  const std::int64_t number = line.number("number");
  return lane.calls.emplace(number, DumpCall{std::move(line)}).second;
}

bool take_line(DumpLine line, Dump& dump) {
  const std::string_view word = line.word();
  if (word == "written") return take_written(std::move(line), dump);
  if (word == "lane" || word == "op") return take_of_lane(std::move(line), dump);
  if (word == "verdict") return dump.verdict = std::move(line), dump.verdict.has("code");
  auto* list = word == "heard"    ? &dump.heard
               : word == "peer"   ? &dump.peers
               : word == "member" ? &dump.members
                                  : nullptr;
  if (list == nullptr) return !word.empty();
  if (line.rank("rank") < 0) return false;
  list->push_back(std::move(line));
  return true;
}

}  // namespace

DumpLine::DumpLine(std::string_view text) {
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size());
  while (!text.empty()) {
    const auto equals = text.find('=');
    if (text.front() != ' ' || equals == text.npos || fields_.size() == most_dump_fields) return;
    const std::string_view name = text.substr(1, equals - 1);
    text.remove_prefix(equals + 1);
    const std::string_view value = text.substr(0, value_length(text));
    if (value.empty() || !is_valid_field(name, value)) return;
    text.remove_prefix(value.size());
    if (value != R"("")") fields_.emplace_back(name, value);
  }
  word_ = word;
}

std::string_view DumpLine::raw(std::string_view name) const {
  const auto found =
      std::ranges::find(fields_, name, [](const auto& field) { return field.first; });
  return found == fields_.end() ? std::string_view() : found->second;
}

std::string DumpLine::text(std::string_view name) const {
  std::string_view value = raw(name);
  if (!value.starts_with('"')) return base::printable(std::string(value));
  std::string text;
  for (std::size_t i = 1; i + 1 < value.size(); ++i) text += value[value[i] == '\\' ? ++i : i];
  return base::printable(std::move(text));
}

std::int64_t DumpLine::number(std::string_view name, std::int64_t otherwise) const {
  return base::parse_whole<std::int64_t>(raw(name)).value_or(otherwise);
}

std::optional<double> DumpLine::seconds(std::string_view name) const {
  return base::parse_whole<double>(raw(name));
}

std::vector<int> DumpLine::ranks(std::string_view name) const {
  std::vector<int> ranks;
  for (const std::string_view part : base::split(raw(name), ','))
    ranks.push_back(base::parse_whole<int>(part).value_or(-1));
  return ranks;
}

Dump parse_dump(const std::string& path, std::string text) {
  const auto check = [&](bool good, const char* problem) {
    if (!good) throw UsageError(base::printable(fmt::format("{}: {}", path, problem)));
  };
  check(text.starts_with(dump_begin), "not a dump of Rondo, or one of another version of it");
  check(text.size() <= most_dump_bytes, "larger than 16 MiB, so not a dump of Rondo");
  Dump dump;
  dump.path = path;
  dump.content = std::make_unique<const std::string>(std::move(text));
  std::string_view rest = *dump.content;
  rest.remove_prefix(dump_begin.size());
  // A line without its end may lack digits, so it is not read.
  for (auto end = rest.find('\n'); end != rest.npos && !dump.whole; end = rest.find('\n')) {
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    dump.whole = rest.empty() && line == fmt::format("end lines={}", dump.lines);
    if (!dump.whole && (++dump.lines > most_dump_lines || !take_line(DumpLine(line), dump)))
      ++dump.invalid;
  }
  check(dump.written.has("rank"), "has no valid line `written`; it was cut or changed");
  return dump;
}

std::string format_utc(std::int64_t microseconds) {
  using namespace std::chrono;
  const sys_time<std::chrono::microseconds> time{std::chrono::microseconds(microseconds)};
  const year_month_day date(floor<days>(time));
  const hh_mm_ss clock(time - floor<days>(time));
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count(),
                     clock.subseconds().count());
}

std::string describe(const DumpCall& call, const std::vector<std::string_view>& differing) {
  const auto bytes = static_cast<std::uint64_t>(call.number("bytes"));
  std::string size = bytes > 0 ? base::describe_bytes(bytes) : "";
  for (const char* name : {"type", "op"})
    if (call.has(name)) size += (size.empty() ? "" : " ") + call.text(name);
  std::vector<std::string> parts;
  if (!size.empty()) parts.push_back(size);
  for (const std::string_view name : {"count", "root", "scale", "algorithm", "plan", "device"})
    if (call.has(name) && (name == "root" || contains(differing, name)))
      parts.push_back(fmt::format("{} {}", name, call.text(name)));
  if (call.has("tag")) parts.push_back(fmt::format("\"{}\"", call.text("tag")));
  const std::string name = call.text("name");
  return parts.empty() ? name : fmt::format("{} ({})", name, join(parts));
}

}  // namespace rondo::tools
