// SPDX-License-Identifier: Apache-2.0
//
// `rondo trace`.
#include <fmt/format.h>
#include <rondo/version.h>

#include <algorithm>
#include <memory>

#include "base/text.h"
#include "tools/records/result_file.h"
#include "tools/shared/commands.h"
#include "tools/shared/exit_status.h"
#include "tools/shared/output.h"
#include "tools/shared/text.h"
#include "tools/trace/findings.h"

namespace rondo::tools {
namespace {

struct TraceFlags {
  std::vector<std::string> paths;
  std::string perfetto, torch, json;
};

struct TraceSection {
  const char *name, *title;
  TraceFindings findings = {};
};

void print_job(const Dumps& dumps) {
  std::map<std::string, std::vector<int>> by_reason;
  for (const Dump& dump : dumps) by_reason[dump.written.text("why")].push_back(dump.rank);
  std::vector<std::string> files;
  files.reserve(by_reason.size());
  for (const auto& [why, ranks] : by_reason)
    files.push_back(fmt::format("{} of {}", why, base::list_of_ranks(ranks)));
  const auto [first, last] = std::ranges::minmax_element(dumps, {}, &Dump::time);
  const DumpLine& head = dumps.front().written;
  print("job {}{}, {} ranks over {}, rondo {}\ndumps: {}; written at {}, within {}\n",
        head.text("job"), head.has("group") ? ", group " + head.text("group") : "",
        head.rank("size"), head.text("transport"), head.text("version"), join(files),
        base::format_utc(first->time),
        format_seconds(static_cast<double>(last->time - first->time) * 1e-6));
}

void print_sections(const std::vector<TraceSection>& sections) {
  for (const TraceSection& section : sections) {
    if (!section.findings.empty()) print("\n{}\n", section.title);
    for (const TraceFinding& finding : section.findings)
      print("  {}{}\n",
            finding.lane.empty() || finding.number ? "" : fmt::format("{}: ", finding.lane),
            finding.text);
  }
}

std::string json_of(const Dumps& dumps, const std::vector<TraceSection>& sections) {
  const DumpLine& head = dumps.front().written;
  Json document{{"rondo", version()},
                {"job", head.text("job")},
                {"size", head.rank("size")},
                {"files", Json::array()}};
  for (const Dump& dump : dumps)
    document["files"].push_back({{"rank", dump.rank},
                                 {"path", dump.path},
                                 {"why", dump.written.text("why")},
                                 {"time", base::format_utc(dump.time)},
                                 {"whole", dump.whole}});
  for (const TraceSection& section : sections) {
    Json& list = document[section.name] = Json::array();
    for (const TraceFinding& finding : section.findings) {
      list.push_back({{"kind", finding.kind}, {"ranks", finding.ranks}, {"text", finding.text}});
      if (!finding.lane.empty()) list.back()["lane"] = finding.lane;
      if (finding.number) list.back()["number"] = *finding.number;
    }
  }
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_torch(const Dumps& dumps, const std::string& prefix) {
  std::vector<std::string> left_out;
  for (const Dump& dump : dumps)
    write_report("--torch", prefix + std::to_string(dump.rank),
                 pickle(torch_trace(dumps, dump, left_out)));
  if (!left_out.empty())
    say("rondo trace: --torch leaves out what torchfrtrace cannot pair: {}\n", join(left_out));
}

void run_trace(const TraceFlags& flags) {
  std::vector<TraceSection> sections{
      {"verdict", "Verdict"},     {"calls", "Calls that differ"},
      {"file_problems", "Files"}, {"standing", "Where the ranks stand"},
      {"late", "Who is late"},    {"clocks", "Clocks"}};
  if (!flags.json.empty() && !flags.perfetto.empty() && is_one_file(flags.json, flags.perfetto))
    throw UsageError("--json and --perfetto name one file; name two");
  Dumps dumps = read_dumps(flags.paths, sections[2].findings);
  set_clocks(dumps, sections[5].findings);
  find_verdict(dumps, sections[0].findings);
  find_differences(dumps, sections[1].findings);
  find_lone_messages(dumps, sections[1].findings);
  find_file_problems(dumps, sections[2].findings);
  find_standing(dumps, sections[3].findings);
  find_late(dumps, sections[4].findings);
  if (!is_standard_output(flags.json) && !is_standard_output(flags.perfetto)) {
    print_job(dumps);
    const bool failed = std::ranges::any_of(
        dumps, [](const Dump& dump) { return dump.written.raw("why") == "failure"; });
    if (!failed && sections[0].findings.empty() && sections[1].findings.empty())
      print("\nNo failure, and no calls that differ\n");
    print_sections(sections);
  }
  if (!flags.json.empty()) write_report("--json", flags.json, json_of(dumps, sections));
  if (!flags.perfetto.empty()) write_report("--perfetto", flags.perfetto, trace_events(dumps));
  if (!flags.torch.empty()) write_torch(dumps, flags.torch);
}

}  // namespace

void add_trace(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "trace", "Compare the dumps of the ranks of a job: what failed, and which calls differ");
  auto flags = std::make_shared<TraceFlags>();
  const auto add = [&](const char* name, auto& value, const char* text) {
    command->add_option(name, value, text)->type_name("");
  };
  add("paths", flags->paths,
      "Dumps, or a folder of dumps, or a folder of such folders, of which the newest is taken; "
      "without it, the folder to which ranks write on this host");
  add("--perfetto", flags->perfetto, "Write the calls to this file, for ui.perfetto.dev");
  add("--torch", flags->torch,
      "Write a pickle for each rank to this path with the rank behind it, for torchfrtrace");
  add("--json", flags->json,
      "Write the findings to this file as JSON; - is the standard output, without the text");
  command->callback([flags, &exit_code] {
    exit_code = exit_fine;
    run_trace(*flags);
  });
}

}  // namespace rondo::tools
