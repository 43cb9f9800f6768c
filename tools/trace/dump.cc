// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/dump.h"

#include <fmt/format.h>
#include <rondo/types.h>

#include <cmath>
#include <ctime>

#include "base/text.h"
#include "tools/shared/lists.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

constexpr std::string_view dump_begin = "rondo dump 1\n";
// Bound what an invalid file can cost.
constexpr std::size_t most_dump_lines = 1 << 16, most_dump_fields = 64;
constexpr int most_dump_rank = 1'000'000;
constexpr std::int64_t most_dump_number = std::int64_t{1} << 62;
constexpr double most_dump_seconds = 1e9;
constexpr std::int64_t most_dump_time =
    4'000'000'000'000'000;  // in 2096; its nanoseconds fit in 64 bits

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

int rank_of(std::string_view text) {
  const auto rank = base::parse_whole<int>(text);
  return rank && *rank >= 0 && *rank <= most_dump_rank ? *rank : -1;
}

std::optional<std::int64_t> parse_utc(const std::string& text) {
  std::tm parts{};
  const char* const rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S.", &parts);
  const std::int64_t second = ::timegm(&parts);
  if (rest == nullptr || second < 0 || second > most_dump_time / 1'000'000) return {};
  const auto part = base::parse_whole<unsigned>(std::string_view(rest).substr(0, 6));
  const std::int64_t time = second * 1'000'000 + part.value_or(0);
  return text == base::format_utc(time) ? std::optional(time) : std::nullopt;
}

bool take_written(DumpLine line, Dump& dump) {
  const auto time = parse_utc(line.text("time"));
  if (!time || line.number("clock", -1) < 0 || line.rank("rank") < 0 ||
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
  const std::int64_t number = line.number("number");
  return number > 0 && line.has("name") && line.has("state") &&
         lane.calls.emplace(number, DumpCall{std::move(line)}).second;
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
    if (value.empty()) return;
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
  const std::string_view value = raw(name);
  if (!value.starts_with('"')) return base::printable(std::string(value));
  std::string text;
  for (std::size_t i = 1; i + 1 < value.size(); ++i) text += value[value[i] == '\\' ? ++i : i];
  return base::printable(std::move(text));
}

std::int64_t DumpLine::number(std::string_view name, std::int64_t otherwise) const {
  const auto number = base::parse_whole<std::int64_t>(raw(name));
  return number && *number >= 0 && *number <= most_dump_number ? *number : otherwise;
}

int DumpLine::rank(std::string_view name) const {
  return rank_of(raw(name));
}

std::optional<double> DumpLine::seconds(std::string_view name) const {
  const auto time = base::parse_whole<double>(raw(name));
  return time && std::abs(*time) <= most_dump_seconds ? time : std::nullopt;  // nor a NaN
}

std::vector<int> DumpLine::ranks(std::string_view name) const {
  std::vector<int> ranks;
  for (const std::string_view part : base::split(raw(name), ','))
    if (const int rank = rank_of(part); rank >= 0) ranks.push_back(rank);
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

std::string describe(const DumpCall& call, const std::vector<std::string_view>& differing) {
  // As in errors: the bytes that ranks agree on. Those of the record are of the larger buffer.
  const auto type = parse_dtype(call.raw("type"));
  const auto bytes = type && call.has("count") && !call.has("peer")
                         ? static_cast<std::uint64_t>(call.number("count")) * size_of(*type)
                         : static_cast<std::uint64_t>(call.number("bytes"));
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
