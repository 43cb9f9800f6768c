// SPDX-License-Identifier: Apache-2.0
#include <rondo/version.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "tools/records/compare.h"
#include "tools/records/record_file.h"
#include "tools/records/result_file.h"
#include "tools/shared/commands.h"
#include "tools/shared/exit_status.h"
#include "tools/shared/output.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

struct CompareFlags {
  std::string first, second, worse, metric = "p50", json;
};

// A file whose name has a comma is one file.
std::vector<std::string> paths_of(const std::string& words) {
  std::error_code unknown;
  if (std::filesystem::exists(words, unknown)) return {words};
  std::vector<std::string> paths;
  for (std::string& path : split(words, ','))
    if (!path.empty()) paths.push_back(std::move(path));
  if (paths.empty()) throw UsageError("no file is named; rondo compare a.json b.json");
  return paths;
}

Metric read_metric(const std::string& text) {
  const std::vector<std::string> names{"p50", "busbw", "p99"};
  for (const Metric metric : {Metric::p50, Metric::p99, Metric::busbw})
    if (text == name_of(metric)) return metric;
  refuse_unknown("--metric", text, names);
}

// Four digits.
std::string short_value(double value) {
  if (value >= 1000) return fmt::format("{:.0f}", value);
  return fmt::format("{:.{}f}", value, value >= 100 ? 1 : value >= 10 ? 2 : value >= 1 ? 3 : 4);
}

std::string_view word_of(Verdict verdict) {
  constexpr std::array<std::string_view, 6> words{"same",   "better", "worse",
                                                  "FAILED", "WRONG",  "-"};
  return words[static_cast<std::size_t>(verdict)];
}

std::string noise_of(const SideOfRow& side) {
  return fmt::format("{}..{}", short_value(side.low), short_value(side.high));
}

// Lists the differences between the sides of a row beside its times.
std::string note_of(const ComparedRow& row, bool names_ranks, bool names_transports) {
  std::vector<std::string> parts;
  if (row.key.root > 0) parts.push_back(fmt::format("root {}", row.key.root));
  if (names_ranks) parts.push_back(fmt::format("{} ranks", row.key.ranks));
  const auto differs = [&](const char* name, const std::string& a, const std::string& b) {
    if (a != b) parts.push_back(fmt::format("{} {} | {}", name, a, b));
  };
  if (names_transports) differs("transport", row.first.transport, row.second.transport);
  differs("algorithm", row.first.algorithm, row.second.algorithm);
  differs("calls", std::to_string(row.first.calls), std::to_string(row.second.calls));
  if (row.first.rows > 1 || row.second.rows > 1)
    parts.push_back(fmt::format("rows {} | {}", row.first.rows, row.second.rows));
  return join(parts);
}

void print_side(const char* name, const std::vector<Record>& records) {
  for (const Record& record : records)
    print_text(base::printable(fmt::format("# {}: {}, {}", name, record.path, describe(record))) +
               "\n");
}

constexpr std::string_view columns = "{:<14} {:>9} {:>13} {:>5} {:>9} {:>17} {:>9} {:>17} {:>6} {}";

void print_rows(const Comparison& comparison) {
  const bool names_ranks = std::ranges::any_of(comparison.rows, [&](const ComparedRow& row) {
    return row.key.ranks != comparison.rows.front().key.ranks;
  });
  const std::string metric(name_of(comparison.metric));
  // Where it differs in every row, a line above the table says so.
  const bool names_transports = std::ranges::any_of(comparison.rows, [](const ComparedRow& row) {
    return row.first.transport == row.second.transport;
  });
  print("#\n#{}\n", fmt::format(columns, " operation", "size", "type", "place", metric, "noise",
                                metric, "noise", "ratio", "verdict")
                        .substr(1));
  const char* unit = comparison.metric == Metric::busbw ? "(GB/s)" : "(us)";
  print_title(columns, "", "", "", "", "first", unit, "second", unit, "", "");
  for (const ComparedRow& row : comparison.rows) {
    const RowKey& key = row.key;
    const std::string type = key.op == "none" ? key.type : key.type + " " + key.op;
    const std::string note = note_of(row, names_ranks, names_transports);
    const std::string line =
        fmt::format(columns, key.operation, base::describe_bytes(key.bytes), type,
                    key.in_place ? "in" : "out", short_value(row.first.value), noise_of(row.first),
                    short_value(row.second.value), noise_of(row.second),
                    row.ratio > 0 ? fmt::format("{:.3f}", row.ratio) : "-", word_of(row.verdict));
    print_text(base::printable(note.empty() ? line : fmt::format("{}  {}", line, note)) + "\n");
  }
}

void print_missing(const char* name, const std::vector<RowKey>& keys) {
  for (const RowKey& key : keys)
    print_text(base::printable(fmt::format("# only in {}: {}", name, describe(key))) + "\n");
}

void print_summary(const Comparison& comparison, const std::optional<double>& worse) {
  const std::uint64_t failed = comparison.count(Verdict::failed);
  print("#\n# {} rows: {} same within noise, {} better, {} worse", comparison.rows.size(),
        comparison.count(Verdict::same), comparison.count(Verdict::better),
        comparison.count(Verdict::worse) + failed);
  if (worse) print(", of these {} by more than {:g} %", failed, *worse);
  if (const auto wrong = comparison.count(Verdict::wrong); wrong > 0)
    print(", {} with wrong results", wrong);
  if (const auto unknown = comparison.count(Verdict::unknown); unknown > 0)
    print(", {} without this metric", unknown);
  print("\n");
}

Json json_of(const RowKey& key) {
  return {
      {"operation", key.operation}, {"bytes", key.bytes}, {"type", key.type},        {"op", key.op},
      {"root", key.root},           {"ranks", key.ranks}, {"in_place", key.in_place}};
}

Json json_of(const SideOfRow& side) {
  return {{"value", side.value},         {"low", side.low},
          {"high", side.high},           {"rows", side.rows},
          {"wrong", side.wrong},         {"errors", side.errors},
          {"transport", side.transport}, {"algorithm", side.algorithm}};
}

Json json_of(const std::vector<Record>& records) {
  Json list = Json::array();
  for (const Record& record : records)
    list.push_back({{"path", record.path}, {"time", record.time}, {"complete", record.complete}});
  return list;
}

Json json_of(const std::vector<RowKey>& keys) {
  Json list = Json::array();
  for (const RowKey& key : keys) list.push_back(json_of(key));
  return list;
}

std::string json_of(const Comparison& comparison, const std::vector<Record>& first,
                    const std::vector<Record>& second, const std::optional<double>& worse) {
  Json rows = Json::array();
  for (const ComparedRow& row : comparison.rows) {
    Json json = json_of(row.key);
    json["first"] = json_of(row.first);
    json["second"] = json_of(row.second);
    json["ratio"] = row.ratio;
    json["verdict"] = word_of(row.verdict);
    rows.push_back(std::move(json));
  }
  const Json document{{"rondo", version()},
                      {"metric", name_of(comparison.metric)},
                      {"worse_percent", worse ? Json(*worse) : Json()},
                      {"first", json_of(first)},
                      {"second", json_of(second)},
                      {"differences", differences(first, second)},
                      {"rows", std::move(rows)},
                      {"only_first", json_of(comparison.only_first)},
                      {"only_second", json_of(comparison.only_second)}};
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

int run_compare(const CompareFlags& flags) {
  const Metric metric = read_metric(flags.metric);
  std::optional<double> worse;
  if (!flags.worse.empty()) worse = parse_worse(flags.worse, metric);
  const auto first = read_records("rondo compare", paths_of(flags.first));
  const auto second = read_records("rondo compare", paths_of(flags.second));
  const Comparison comparison = compare(first, second, metric, worse);
  if (!is_standard_output(flags.json)) {
    print_side("first ", first);
    print_side("second", second);
    for (const std::string& line : differences(first, second))
      print_text(base::printable("# differs: " + line) + "\n");
    print_rows(comparison);
    print_missing("first", comparison.only_first);
    print_missing("second", comparison.only_second);
    print_summary(comparison, worse);
  }
  if (!flags.json.empty())
    write_report("--json", flags.json, json_of(comparison, first, second, worse));
  flush_output();
  const bool whole = std::ranges::all_of(second, &Record::complete);
  if (comparison.count(Verdict::failed) > 0 || comparison.count(Verdict::wrong) > 0)
    return exit_missed;
  return worse && !whole ? exit_missed : exit_fine;
}

}  // namespace

void add_compare(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "compare", "Compare the records of rondo bench --json: rows side by side, ratio, noise");
  auto flags = std::make_shared<CompareFlags>();
  const auto add = [&](const char* name, std::string& value, const char* text) {
    return command->add_option(name, value, text)->type_name("");
  };
  add("first", flags->first, "A record to compare with; several of the same benchmark with commas")
      ->required();
  add("second", flags->second, "A record to judge; several with commas")->required();
  add("--worse", flags->worse,
      "As in 10%: the exit status is 1 when a row is worse by more than this and beyond noise, or "
      "when a second record is not complete");
  add("--metric", flags->metric, "p50 (default), p99 or busbw");
  add("--json", flags->json,
      "Write the comparison to this file as JSON; - is the standard output, without the table");
  command->footer(
      "The noise of one row is min to p90 of its iterations (p99: p90 to max; busbw: what these "
      "times\nmake of it). That of several rows is from their least value to the greatest, from "
      "ten rows on\nwithout the outer tenths. A row differs when no value of one side lies in the "
      "noise of the\nother. ratio is second over first. The exit status is 1 also when the second "
      "side has wrong\nelements, and 2 for files that cannot be compared.");
  command->callback([flags, &exit_code] { exit_code = run_compare(*flags); });
}

}  // namespace rondo::tools
