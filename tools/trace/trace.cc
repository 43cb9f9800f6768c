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
#include "tools/trace/calls.h"
#include "tools/trace/exports.h"
#include "tools/trace/state.h"

namespace rondo::tools {
namespace {

struct TraceFlags {
  std::vector<std::string> paths;
  std::string perfetto, torch, json;
};

struct Section {
  const char* name;
  const char* title;
  TraceFindings findings;
};

std::string head_of(const std::vector<Dump>& dumps) {
  std::vector<int> ranks;
  std::map<std::string, std::vector<int>> reasons;
  std::int64_t first = dumps.front().time, last = first;
  for (const Dump& dump : dumps) {
    ranks.push_back(dump.rank);
    reasons[dump.why].push_back(dump.rank);
    first = std::min(first, dump.time);
    last = std::max(last, dump.time);
  }
  std::vector<std::string> written;
  for (const auto& [why, those] : reasons)
    written.push_back(
        fmt::format("{} ({})", why, reasons.size() == 1 ? "all" : base::list_of_ranks(those)));
  const Dump& dump = dumps.front();
  return fmt::format(
      "job {}{}, {} ranks over {}, rondo {}\nfiles of {}, written at {} within {}: {}\n", dump.job,
      dump.group.empty() ? "" : fmt::format(", group {}", dump.group), dump.size, dump.transport,
      dump.version, base::list_of_ranks(ranks), describe_time(first),
      format_seconds(static_cast<double>(last - first) * 1e-6), join(written));
}

void print_section(const Section& section) {
  if (section.findings.empty()) return;
  print("\n{}\n", section.title);
  for (const TraceFinding& finding : section.findings) {
    const bool names_lane = finding.number || finding.lane.empty();
    print("  {}{}\n", names_lane ? "" : finding.lane + ": ", finding.text);
  }
}

std::string json_of(const std::vector<Dump>& dumps, const std::vector<Section>& sections) {
  Json document{{"rondo", version()}, {"job", dumps.front().job}, {"size", dumps.front().size}};
  for (const Dump& dump : dumps) {
    document["files"].push_back({{"rank", dump.rank},
                                 {"path", dump.path},
                                 {"why", dump.why},
                                 {"time", describe_time(dump.time)},
                                 {"host", dump.host},
                                 {"whole", dump.whole}});
  }
  for (const Section& section : sections) {
    Json& list = document[section.name] = Json::array();
    for (const TraceFinding& finding : section.findings) {
      Json json{{"kind", finding.kind}, {"ranks", finding.ranks}};
      if (!finding.lane.empty()) json["lane"] = finding.lane;
      if (finding.number) json["number"] = *finding.number;
      json["text"] = finding.text;
      list.push_back(std::move(json));
    }
  }
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void write_torch(const std::vector<Dump>& dumps, const CommonClock& clock,
                 const std::string& prefix) {
  std::vector<std::string> left_out;
  for (std::size_t i = 0; i < dumps.size(); ++i)
    write_report("--torch", prefix + std::to_string(dumps[i].rank),
                 pickle(torch_trace(dumps, dumps[i], clock.shift[i], left_out)));
  if (!left_out.empty())
    say("rondo trace: --torch: left out, because torchfrtrace cannot compare them: {}\n",
        join(left_out));
}

void run_trace(const TraceFlags& flags) {
  Section files{"file_problems", "Files", {}}, clocks{"clocks", "Clocks", {}};
  const std::vector<Dump> dumps = read_dumps(flags.paths, files.findings);
  const CommonClock clock(dumps, clocks.findings);
  Section verdict{"verdict", "Verdict", {}}, calls{"calls", "Calls that differ", {}},
      standing{"standing", "Where the ranks stand", {}}, late{"late", "Who is late", {}};
  find_verdict(dumps, verdict.findings);
  find_differences(dumps, calls.findings);
  find_lone_messages(dumps, calls.findings);
  find_standing(dumps, standing.findings);
  find_late(dumps, late.findings);
  const std::vector<Section> sections{verdict, calls, files, standing, late, clocks};
  if (!is_standard_output(flags.json) && !is_standard_output(flags.perfetto)) {
    print_text(head_of(dumps));
    for (const Section& section : sections) print_section(section);
    if (verdict.findings.empty() && calls.findings.empty())
      print("\nNo failure, and the calls that the files hold do not differ.\n");
  }
  if (!flags.json.empty()) write_report("--json", flags.json, json_of(dumps, sections));
  if (!flags.perfetto.empty())
    write_report("--perfetto", flags.perfetto, trace_events(dumps, clock));
  if (!flags.torch.empty()) write_torch(dumps, clock, flags.torch);
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
      "A folder of dumps, a folder of such folders (the newest is taken), or dumps; without it, "
      "the "
      "folder to which ranks write on this host");
  add("--perfetto", flags->perfetto, "Write the calls to this file, for ui.perfetto.dev");
  add("--torch", flags->torch,
      "Write a pickle for each rank, this path and the rank, for PyTorch's torchfrtrace");
  add("--json", flags->json,
      "Write the findings to this file as JSON; - is the standard output, without the text");
  command->callback([flags, &exit_code] {
    exit_code = exit_fine;
    run_trace(*flags);
  });
}

}  // namespace rondo::tools
