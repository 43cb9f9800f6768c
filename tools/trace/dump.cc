// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "tools/shared/lists.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

constexpr std::string_view first_line = "rondo dump 1\n";
// More than the recorder keeps: they bound the memory that a file can cost.
constexpr std::size_t most_calls = 1 << 16, most_lines = 1 << 16, most_fields = 64;
constexpr int most_rank = 1'000'000;
constexpr std::int64_t most_clock = std::int64_t{1} << 62;
constexpr double most_seconds = 1e9;

// One line: a word, and fields by name. The first invalid field makes the whole line invalid.
class Line {
 public:
  explicit Line(std::string_view text) {
    word_ = text.substr(0, text.find(' '));
    text.remove_prefix(word_.size());
    valid_ = !word_.empty();
    while (valid_ && !text.empty()) valid_ = fields_.size() < most_fields && take_field(text);
  }

  std::string_view word() const noexcept { return word_; }
  bool valid() const noexcept { return valid_; }
  std::string text(std::string_view name) const {
    const std::string* value = find(name);
    return value == nullptr ? std::string() : *value;
  }
  std::string need(std::string_view name) {
    const std::string value = text(name);
    if (value.empty()) valid_ = false;
    return value;
  }
  template <class T>
  std::optional<T> number(std::string_view name, T least, T most) {
    const std::string* value = find(name);
    if (value == nullptr) return {};
    const auto number = base::parse_whole<T>(*value);
    // Also false for a NaN.
    if (number && *number >= least && *number <= most) return number;
    valid_ = false;
    return {};
  }
  template <class T>
  T need_number(std::string_view name, T least, T most) {
    const auto value = number<T>(name, least, most);
    if (!value) valid_ = false;
    return value.value_or(T{});
  }
  std::uint64_t count(std::string_view name) {
    return number<std::uint64_t>(name, 0, std::numeric_limits<std::uint64_t>::max()).value_or(0);
  }
  std::optional<double> seconds(std::string_view name) {
    return number<double>(name, -most_seconds, most_seconds);
  }
  std::optional<int> rank(std::string_view name, int least = 0) {
    return number<int>(name, least, most_rank);
  }
  std::vector<int> ranks(std::string_view name) {
    const std::string value = text(name);
    std::vector<int> list;
    for (const std::string_view part : base::split(value, ',')) {
      const auto rank = base::parse_whole<int>(part);
      if (!rank || *rank < 0 || *rank > most_rank) valid_ = false;
      list.push_back(rank.value_or(0));
    }
    return list;
  }
  std::size_t lane() {
    const auto found = std::ranges::find(lane_names, text("lane"));
    if (found == lane_names.end()) valid_ = false;
    return found == lane_names.end() ? 0 : static_cast<std::size_t>(found - lane_names.begin());
  }

 private:
  const std::string* find(std::string_view name) const {
    for (const auto& field : fields_)
      if (field.first == name) return &field.second;
    return nullptr;
  }
  // Takes " name=value" off the text.
  bool take_field(std::string_view& text) {
    const auto equals = text.find('=');
    if (text.front() != ' ' || equals == std::string_view::npos || equals < 2) return false;
    const std::string_view name = text.substr(1, equals - 1);
    if (name.find_first_of(" \"") != std::string_view::npos) return false;
    text.remove_prefix(equals + 1);
    std::string value;
    const bool quoted = text.starts_with('"');
    if (quoted) {
      if (!take_quoted(text, value)) return false;
    } else {
      value = text.substr(0, text.find(' '));
      text.remove_prefix(value.size());
      if (value.empty() || value.find('"') != std::string::npos) return false;
    }
    fields_.emplace_back(name, base::printable(std::move(value)));
    return text.empty() || text.front() == ' ';
  }
  static bool take_quoted(std::string_view& text, std::string& value) {
    for (std::size_t i = 1; i < text.size(); ++i) {
      if (text[i] == '"') {
        text.remove_prefix(i + 1);
        return true;
      }
      if (text[i] == '\\' && ++i == text.size()) break;
      value += text[i];
    }
    return false;
  }

  std::string_view word_;
  std::vector<std::pair<std::string_view, std::string>> fields_;
  bool valid_ = true;
};

std::optional<std::int64_t> parse_time(std::string_view text) {
  using namespace std::chrono;
  if (text.size() != 27) return {};
  for (const auto& [at, mark] :
       {std::pair{4, '-'}, {7, '-'}, {10, 'T'}, {13, ':'}, {16, ':'}, {19, '.'}, {26, 'Z'}})
    if (text[static_cast<std::size_t>(at)] != mark) return {};
  bool digits = true;
  const auto part = [&](std::size_t at, std::size_t length, unsigned most) {
    const auto value = base::parse_whole<unsigned>(text.substr(at, length));
    if (!value || *value > most) digits = false;
    return value.value_or(0);
  };
  const year_month_day day{year(static_cast<int>(part(0, 4, 9999))), month(part(5, 2, 12)),
                           std::chrono::day(part(8, 2, 31))};
  const auto time = hours(part(11, 2, 23)) + minutes(part(14, 2, 59)) + seconds(part(17, 2, 60));
  const microseconds rest(part(20, 6, 999'999));
  if (!digits || !day.ok()) return {};
  return duration_cast<microseconds>(sys_days(day).time_since_epoch() + time).count() +
         rest.count();
}

// Returns whether the line is valid; only then the dump changes. So do the others.
bool read_written(Line& line, Dump& dump) {
  const auto time = parse_time(line.need("time"));
  const int size = line.need_number<int>("size", 1, most_rank);
  const int rank = line.need_number<int>("rank", 0, std::max(0, size - 1));
  const auto clock = line.need_number<std::int64_t>("clock", 0, most_clock);
  const std::string job = line.need("job"), clock_id = line.need("clock_id");
  if (!line.valid() || !time) return false;
  dump.why = line.text("why");
  dump.rank = rank, dump.size = size, dump.time = *time, dump.clock = clock;
  dump.job = job, dump.clock_id = clock_id;
  dump.group = line.text("group");
  dump.host = line.text("host");
  dump.version = line.text("version");
  dump.transport = line.text("transport");
  return true;
}

bool read_verdict(Line& line, Dump& dump) {
  DumpedVerdict verdict{line.need("code"),    line.text("cause"),     line.text("link"),
                        line.rank("seen_by"), line.ranks("culprits"), line.seconds("at")};
  if (line.valid()) dump.verdict = std::move(verdict);
  return line.valid();
}

bool read_lane(Line& line, Dump& dump) {
  DumpedLane lane;
  const std::size_t place = line.lane();
  lane.started = line.count("started");
  lane.finished = line.count("finished");
  lane.waits_for = line.ranks("waits_for");
  lane.waited = line.seconds("waited").value_or(0);
  lane.call = line.text("call");
  lane.calls = std::move(dump.lanes[place].calls);
  dump.lanes[place] = std::move(lane);
  return line.valid();
}

bool read_peer(Line& line, Dump& dump) {
  DumpedPeer peer{line.need_number<int>("rank", 0, most_rank),
                  line.text("lane"),
                  line.text("expected"),
                  line.text("seen"),
                  line.text("address"),
                  line.seconds("heard")};
  if (line.valid()) dump.peers.push_back(std::move(peer));
  return line.valid();
}

bool read_call(Line& line, Dump& dump) {
  DumpedCall call;
  const std::size_t lane = line.lane();
  for (std::size_t i = 0; i < signature_names.size(); ++i)
    call.signature[i] = line.text(signature_names[i]);
  call.state = line.need("state");
  call.tag = line.text("tag");
  call.number = line.need_number<std::uint64_t>("number", 0, most_clock);
  call.count = line.count("count");
  call.bytes = line.count("bytes");
  call.key = line.number<std::int64_t>("key", std::numeric_limits<std::int64_t>::min(),
                                       std::numeric_limits<std::int64_t>::max());
  call.peer = line.rank("peer", -1);
  call.last = line.rank("last");
  call.called = line.seconds("called");
  call.sent = line.seconds("sent");
  call.ended = line.seconds("ended");
  call.late = line.seconds("late").value_or(0);
  if (!line.valid() || call.name().empty() || dump.lanes[lane].calls.size() == most_calls)
    return false;
  return dump.lanes[lane].calls.emplace(call.number, std::move(call)).second;
}

bool read_rank_text(Line& line, const char* name, std::vector<std::pair<int, std::string>>& list) {
  const int rank = line.need_number<int>("rank", 0, most_rank);
  if (line.valid()) list.emplace_back(rank, line.text(name));
  return line.valid();
}

bool read_line(std::string_view text, Dump& dump) {
  Line line(text);
  if (!line.valid()) return false;
  if (line.word() == "written") return read_written(line, dump);
  if (line.word() == "verdict") return read_verdict(line, dump);
  if (line.word() == "heard") return read_rank_text(line, "text", dump.heard);
  if (line.word() == "lane") return read_lane(line, dump);
  if (line.word() == "peer") return read_peer(line, dump);
  if (line.word() == "op") return read_call(line, dump);
  if (line.word() == "member") return read_rank_text(line, "host", dump.members);
  return true;
}

}  // namespace

Dump parse_dump(const std::string& path, std::string_view text) {
  const auto refuse = [&](const std::string& problem) {
    throw UsageError(base::printable(fmt::format("{}: {}", path, problem)));
  };
  if (!text.starts_with(first_line)) refuse("not a dump of Rondo, or one of another version of it");
  if (text.size() > most_dump_bytes) refuse("larger than 16 MiB, so not a dump of Rondo");
  text.remove_prefix(first_line.size());
  Dump dump;
  dump.path = path;
  // A line without its end may lack digits, so it is not read.
  for (auto end = text.find('\n'); end != text.npos && !dump.whole; end = text.find('\n')) {
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    if (line == fmt::format("end lines={}", dump.lines))
      dump.whole = text.empty();
    else if (++dump.lines > most_lines || !read_line(line, dump))
      ++dump.invalid;
  }
  if (dump.size == 0)
    refuse("has no valid line `written`, so its rank is not known; it was cut or changed");
  return dump;
}

std::string describe_time(std::int64_t microseconds) {
  using namespace std::chrono;
  const sys_time<std::chrono::microseconds> time{std::chrono::microseconds(microseconds)};
  const auto midnight = floor<days>(time);
  const year_month_day day(midnight);
  const hh_mm_ss clock(time - midnight);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", static_cast<int>(day.year()),
                     static_cast<unsigned>(day.month()), static_cast<unsigned>(day.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count(),
                     clock.subseconds().count());
}

std::string describe(const DumpedCall& call, const std::vector<std::string_view>& differing) {
  std::string size = call.bytes > 0 ? base::describe_bytes(call.bytes) : "";
  std::vector<std::string> parts;
  for (std::size_t i = 1; i < signature_names.size(); ++i) {
    const std::string_view name = signature_names[i];
    const std::string& value = call.signature[i];
    if (value.empty()) continue;
    if (name == "type" || name == "op")
      size += (size.empty() ? "" : " ") + value;
    else if (name == "root" || contains(differing, name))
      parts.push_back(fmt::format("{} {}", name, value));
  }
  if (!size.empty()) parts.insert(parts.begin(), size);
  if (!call.tag.empty()) parts.push_back(fmt::format("\"{}\"", call.tag));
  return parts.empty() ? call.name() : fmt::format("{} ({})", call.name(), join(parts));
}

}  // namespace rondo::tools
