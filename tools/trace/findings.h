// SPDX-License-Identifier: Apache-2.0
//
// Finds what the dumps of a job say. Dumps are sorted by rank.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/records/record_file.h"
#include "tools/trace/dump.h"

namespace rondo::tools {

struct TraceFinding {
  std::string kind;
  std::vector<int> ranks;
  std::string text;  // a sentence for people
  std::string_view lane = {};
  std::optional<std::int64_t> number = {};
};
using TraceFindings = std::vector<TraceFinding>;
using Dumps = std::vector<Dump>;

const Dump* find_dump(const Dumps& dumps, int rank);  // null: there is none

// Seconds. Shorter waits are those of a job that runs.
inline constexpr double least_wait = 1;
// How long the call had waited when the dump of another rank was written, or when it failed before.
double waited(const Dump& dump, const DumpCall& call, const Dump& other);

// Reads the dumps of one job, one for each rank: that of its failure, else the newest. paths: files
// and folders. Without a path it takes the folder to which the recorder writes. Of a folder of jobs
// it takes the newest. Adds findings: files of a folder that cannot be read or are of an older job.
// Throws UsageError when a named file cannot be read or is of another job, and when there is
// no dump.
Dumps read_dumps(std::vector<std::string> paths, TraceFindings& findings);
// Ranks without a file, files that are cut, and invalid lines.
void find_file_problems(const Dumps& dumps, TraceFindings& findings);

// Sets Dump::shift.
//
// Dumps with one clock_id share a clock. The offset between two clocks is bounded by collectives in
// which every rank needs all others: none ends on a rank before all have called it. So for ranks a
// and b: called_a <= ended_b and called_b <= ended_a. It takes the middle of the interval that all
// such calls leave; without one, the wall clocks.
void set_clocks(Dumps& dumps, TraceFindings& findings);

// For each lane of collectives: the first number for which the ranks made different calls, or which
// a rank has not called while others wait in it. Says so when a rank left out a call.
void find_differences(const Dumps& dumps, TraceFindings& findings);
// A receive that waits without a send, and a send that waits without a receive.
void find_lone_messages(const Dumps& dumps, TraceFindings& findings);

// From the dump that knows most: the one that has what rank 0 heard from others.
void find_verdict(const Dumps& dumps, TraceFindings& findings);
// Where the ranks stand in each lane: a line for all that stand alike.
void find_standing(const Dumps& dumps, TraceFindings& findings);
// The ranks for which others waited longest, over all calls.
void find_late(const Dumps& dumps, TraceFindings& findings);

// Trace events for ui.perfetto.dev: a process for each rank, tracks for each lane. Calls that
// overlap are on several tracks.
std::string trace_events(const Dumps& dumps);

// One dump as PyTorch's flight recorder writes it, version 2.10, for torchfrtrace. That program
// pairs calls from the beginning, so a lane begins with the first call that all rings hold. Adds to
// `left_out` the names of operations that it does not know or cannot pair.
Json torch_trace(const Dumps& dumps, const Dump& dump, std::vector<std::string>& left_out);
// A pickle of protocol 2 that needs no imports. Texts must be UTF-8.
std::string pickle(const Json& value);

}  // namespace rondo::tools
