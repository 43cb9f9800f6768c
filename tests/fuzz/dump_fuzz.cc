// SPDX-License-Identifier: Apache-2.0
//
// A dump of the recorder, as `rondo trace` reads it. The input is also read behind a valid
// beginning, and what it says is compared with that of another rank.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "tools/shared/text.h"
#include "tools/trace/findings.h"

using namespace rondo::tools;

namespace {

constexpr const char* head =
    "rondo dump 1\nwritten why=call rank=0 size=3 job=ab time=2026-11-30T22:36:14.123456Z "
    "clock=100 clock_id=a\n";

void read(const std::string& text) {
  try {
    Dumps dumps;
    dumps.push_back(parse_dump("first", text));
    std::string other = head;
    other.replace(other.find("rank=0"), 6, "rank=1");
    other.replace(other.find("clock_id=a"), 10, "clock_id=b");
    dumps.push_back(parse_dump(
        "other", other + "op lane=bulk number=2 state=moving name=barrier called=-1 ended=-1\n"));
    if (dumps.front().rank > 0) std::swap(dumps.front(), dumps.back());
    if (dumps.front().rank == dumps.back().rank || dumps.back().written.rank("size") > 1000) return;
    TraceFindings findings;
    set_clocks(dumps, findings);
    find_verdict(dumps, findings);
    find_differences(dumps, findings);
    find_lone_messages(dumps, findings);
    find_file_problems(dumps, findings);
    find_standing(dumps, findings);
    find_late(dumps, findings);
    std::vector<std::string> left_out;
    if (trace_events(dumps).empty() || pickle(torch_trace(dumps, dumps.front(), left_out)).empty())
      std::abort();
  } catch (const UsageError&) {
    return;  // not a dump
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  read(input);
  read(head + input);
  return 0;
}
