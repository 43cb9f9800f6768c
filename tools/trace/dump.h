// SPDX-License-Identifier: Apache-2.0
//
// A dump of the recorder: the calls of one rank. docs/recorder.md has the grammar.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rondo::tools {

inline constexpr std::size_t most_dump_bytes = std::size_t{16} << 20;  // the recorder writes 4 MiB
inline constexpr std::array<std::string_view, 3> dump_lanes{"bulk", "urgent", "messages"};
inline constexpr std::size_t messages_lane = 2;

// A word and its fields. Refers to the text of its dump. A value that is invalid is not known.
class DumpLine {
 public:
  explicit DumpLine(std::string_view text = {});  // an invalid line has no word
  std::string_view word() const noexcept { return word_; }
  bool has(std::string_view name) const { return !raw(name).empty(); }
  std::string_view raw(std::string_view name) const;  // empty: not known. Quoted as in the file.
  std::string text(std::string_view name) const;      // fit for a terminal
  std::int64_t number(std::string_view name, std::int64_t otherwise = 0) const;  // not below 0
  int rank(std::string_view name) const;                                         // or -1
  std::optional<double> seconds(std::string_view name) const;
  std::vector<int> ranks(std::string_view name) const;

 private:
  std::string_view word_;
  std::vector<std::pair<std::string_view, std::string_view>> fields_;
};

struct DumpCall : DumpLine {
  bool done() const { return raw("state") == "done"; }
  bool waits() const { return !done() && raw("state") != "failed"; }
  // When the call began, or else the earliest time that is known of it.
  double begin() const { return seconds("called").value_or(seconds("ended").value_or(0)); }
};

struct DumpLane {
  DumpLine line;
  std::map<std::int64_t, DumpCall> calls;  // by number

  // The number of the last call.
  std::int64_t last() const {
    return std::max(line.number("started"), calls.empty() ? 0 : calls.rbegin()->first);
  }
};

// Times are seconds of the rank's steady clock; 0 is when the dump was written.
struct Dump {
  std::string path;
  std::unique_ptr<const std::string> content;
  DumpLine written, verdict;
  int rank = 0;
  std::int64_t time = 0;  // when it was written: microseconds since 1970
  double shift = 0;       // turns times into those of the job's first dump, which may be wrong
  double doubt = 0;       // by this time
  std::vector<DumpLine> heard, peers, members;
  std::array<DumpLane, dump_lanes.size()> lanes;
  bool whole = false;  // false: the file is cut
  std::size_t lines = 0, invalid = 0;

  // Whether nothing that it says is missing.
  bool sound() const { return whole && invalid == 0; }
};

// Reads text of any origin. Invalid lines are counted and left out. Throws UsageError that names
// the path when the text is not a dump.
Dump parse_dump(const std::string& path, std::string text);

// "all_reduce (64 MiB f32 sum)", with those fields in which calls differ.
std::string describe(const DumpCall& call, const std::vector<std::string_view>& differing = {});

}  // namespace rondo::tools
