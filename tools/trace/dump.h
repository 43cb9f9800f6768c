// SPDX-License-Identifier: Apache-2.0
//
// A dump of the recorder: the calls of one rank. docs/recorder.md has the grammar.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rondo::tools {

// The recorder writes at most 4 MiB.
inline constexpr std::size_t most_dump_bytes = std::size_t{16} << 20;

inline constexpr std::array<std::string_view, 3> lane_names{"bulk", "urgent", "messages"};
inline constexpr std::size_t messages_lane = 2;

// The fields in which the calls of all ranks agree.
inline constexpr std::array<std::string_view, 9> signature_names{
    "name", "type", "count", "op", "root", "scale", "algorithm", "plan", "device"};

// Times are seconds of the rank's steady clock; 0 is when the dump was written.
struct DumpedCall {
  std::array<std::string, signature_names.size()> signature;  // "" where it is not known
  std::string state, tag;
  std::uint64_t number = 0, count = 0, bytes = 0;
  std::optional<std::int64_t> key;  // of messages; peer -1: any rank
  std::optional<int> peer, last;
  std::optional<double> called, sent, ended;
  double late = 0;

  const std::string& name() const noexcept { return signature[0]; }
  bool done() const noexcept { return state == "done"; }
  bool waits() const noexcept { return state != "done" && state != "failed"; }
};

struct DumpedLane {
  std::uint64_t started = 0, finished = 0;
  std::vector<int> waits_for;
  double waited = 0;
  std::string call;                           // the oldest that has not ended
  std::map<std::uint64_t, DumpedCall> calls;  // by number

  std::uint64_t last() const noexcept {
    return calls.empty() ? started : std::max(started, calls.rbegin()->first);
  }
};

struct DumpedVerdict {
  std::string code, cause, link;
  std::optional<int> seen_by;
  std::vector<int> culprits;
  std::optional<double> at;
};

struct DumpedPeer {
  int rank = 0;
  std::string lane, expected, seen, address;
  std::optional<double> heard;
};

struct Dump {
  std::string path, why, group, job, host, version, transport, clock_id;
  int rank = 0, size = 0;
  std::int64_t time = 0;   // microseconds since 1970, UTC
  std::int64_t clock = 0;  // nanoseconds of the steady clock
  std::optional<DumpedVerdict> verdict;
  std::vector<std::pair<int, std::string>> heard, members;  // by rank: a text, a host
  std::vector<DumpedPeer> peers;
  std::array<DumpedLane, lane_names.size()> lanes;
  bool whole = false;  // false: the file is cut
  std::uint64_t lines = 0, invalid = 0;
};

// Reads text of any origin. Lines that are not valid are counted and left out. Throws UsageError
// that names the path when the text is not a dump.
Dump parse_dump(const std::string& path, std::string_view text);

// "2026-11-30T22:36:14.123456Z"
std::string describe_time(std::int64_t microseconds);

// "all_reduce (64 MiB f32 sum)". Also writes those fields in which calls differ.
std::string describe(const DumpedCall& call, const std::vector<std::string_view>& differing = {});

}  // namespace rondo::tools
