// SPDX-License-Identifier: Apache-2.0
//
// The page of `rondo report` as one string. Every text of a record passes through markup_text(): a
// record may come from anybody.
#include "tools/plots/page.h"

#include <rondo/version.h>

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tools/plots/figures.h"
#include "tools/plots/svg.h"
#include "tools/shared/lists.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

// The background is stated, because browsers may be set to dark pages.
constexpr std::string_view style = R"(
:root { color-scheme: light; }
body { background: #ffffff; color: #222222; font: 15px/1.45 system-ui, 'DejaVu Sans', Arial, sans-serif;
  margin: 0 auto; max-width: 70rem; padding: 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.2rem; border-bottom: 1px solid #cccccc; }
h3 { font-size: 1rem; margin: 1.4rem 0 0.4rem; }
figure { margin: 0 0 1.2rem; } figure svg { max-width: 100%; height: auto; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.82rem; }
th, td { border: 1px solid #dddddd; padding: 0.18rem 0.5rem; text-align: left; vertical-align: top;
  overflow-wrap: anywhere; }
.wide th, .wide td { overflow-wrap: normal; white-space: nowrap; }
div:not(.wide) > table td:first-child { white-space: nowrap; }
th { background: #f3f3f3; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.bad { color: #b00020; font-weight: bold; }
code, pre { font-family: ui-monospace, 'DejaVu Sans Mono', monospace; font-size: 0.82rem; }
pre { background: #f6f6f6; padding: 0.6rem; white-space: pre-wrap; overflow-wrap: anywhere; }
@media print {
  body { max-width: none; font-size: 11px; } .wide { overflow: visible; }
  .wide th, .wide td { font-size: 8px; padding: 1px 3px; white-space: normal; }
  figure, tr { break-inside: avoid; } details.raw { display: none; }
}
)";

std::string element(std::string_view name, std::string_view text) {
  return fmt::format("<{0}>{1}</{0}>", name, markup_text(text));
}

// A table. numbers: its columns that are numbers. breaks: long texts are broken into lines.
class Table {
 public:
  Table(const std::vector<std::string>& titles, std::vector<std::size_t> numbers,
        bool breaks = false)
      : numbers_(std::move(numbers)) {
    text_ = fmt::format("<div{}><table>\n<thead><tr>", breaks ? "" : " class=\"wide\"");
    for (std::size_t i = 0; i < titles.size(); ++i)
      text_ += fmt::format("<th{}>{}</th>", kind(i, false), markup_text(titles[i]));
    text_ += "</tr></thead>\n<tbody>\n";
  }
  void row(const std::vector<std::string>& cells, std::size_t bad = SIZE_MAX) {
    text_ += "<tr>";
    for (std::size_t i = 0; i < cells.size(); ++i)
      text_ += fmt::format("<td{}>{}</td>", kind(i, i == bad), markup_text(cells[i]));
    text_ += "</tr>\n";
  }
  std::string end() const { return text_ + "</tbody>\n</table></div>\n"; }

 private:
  std::string kind(std::size_t column, bool bad) const {
    const bool number = contains(numbers_, column);
    if (!number && !bad) return {};
    return fmt::format(" class=\"{}{}{}\"", number ? "n" : "", number && bad ? " " : "",
                       bad ? "bad" : "");
  }

  std::vector<std::size_t> numbers_;
  std::string text_;
};

std::string number(double value) {
  if (value == 0) return "0";
  return fmt::format("{:.{}f}", value, value >= 100 ? 1 : value >= 1 ? 2 : 4);
}

// A word of a command as a shell reads it.
std::string quoted(const std::string& word) {
  constexpr std::string_view safe =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,=@%+";
  if (!word.empty() && word.find_first_not_of(safe) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string command_of(const Record& record) {
  std::string text;
  for (const std::string& word : record.command) text += (text.empty() ? "" : " ") + quoted(word);
  return text;
}

std::string setting_of(const Record& record) {
  Table table({"setting", "value"}, {}, true);
  table.row({"command", command_of(record)});
  table.row({"time", record.time});
  table.row({"rondo", record.rondo});
  table.row({"ranks", fmt::format("{} over {}", record.ranks, record.transport)});
  table.row({"rank 0 is bound to", fmt::format("{}: {}", record.binding, record.processors)});
  table.row({"results checked", record.checked ? "yes" : "no"});
  table.row({"inputs written anew", record.fresh ? "yes" : "no"});
  table.row({"buffers from allocate()", record.allocated ? "yes" : "no"});
  if (!record.device_name.empty())
    table.row({"GPU", fmt::format("{}; staged through {}", record.device_name, record.staging)});
  for (const auto& [name, value] : record.environment) table.row({name, value});
  return table.end();
}

std::string hosts_of(const Record& record) {
  Table table({"host", "ranks", "processor", "cores", "memory", "kernel", "interfaces"}, {3});
  for (const HostRecord& host : record.hosts) {
    std::vector<std::string> interfaces;
    for (const InterfaceRecord& interface : host.interfaces)
      interfaces.push_back(fmt::format(
          "{} {}{}", interface.name, interface.address,
          interface.mbit > 0 ? fmt::format(" ({} Mbit/s)", interface.mbit) : std::string()));
    table.row({host.name, ranks_of(host), host.processor, fmt::format("{}", host.cores),
               base::describe_bytes(host.memory_bytes), host.kernel, join(interfaces)});
  }
  return table.end();
}

std::string left_out(std::size_t rows, std::size_t most, std::string_view what) {
  if (rows <= most) return {};
  return element("p", fmt::format("The table has the first {} of {} {}; the record has all.", most,
                                  rows, what)) +
         "\n";
}

std::string type_of(const std::string& type, const std::string& op) {
  return op == "none" ? type : type + " " + op;
}

std::string late_of(const ResultRow& row) {
  if (!row.late_rank || *row.late_rank < 0 || !row.late_us) return {};
  return fmt::format("rank {}, {} us", *row.late_rank, number(*row.late_us));
}

std::string rows_of(const Record& record) {
  const bool soak = record.kind == "soak";
  const std::size_t most = soak ? most_intervals : most_table_rows;
  // An interval begins with its second.
  const std::size_t first = soak ? 1 : 0;
  std::vector<std::string> titles{
      "operation", "size",   "type",   "root",   "place",      "algorithm",    "calls", "min us",
      "p50 us",    "p90 us", "p99 us", "max us", "busbw GB/s", "% of ceiling", "wrong", "last"};
  std::vector<std::size_t> numbers;
  if (soak) {
    titles.insert(titles.begin(), "second");
    numbers.push_back(0);
  }
  for (std::size_t column = 6; column < 15; ++column) numbers.push_back(first + column);
  Table table(titles, numbers);
  for (std::size_t i = 0; i < std::min(record.rows.size(), most); ++i) {
    const ResultRow& row = record.rows[i];
    std::vector<std::string> cells{row.operation,
                                   base::describe_bytes(row.bytes),
                                   type_of(row.type, row.op),
                                   row.root < 0 ? "" : std::to_string(row.root),
                                   row.in_place ? "in" : "out",
                                   row.algorithm,
                                   fmt::format("{}", row.iterations),
                                   number(row.time.min_us),
                                   number(row.time.p50_us),
                                   number(row.time.p90_us),
                                   number(row.time.p99_us),
                                   number(row.time.max_us),
                                   number(row.busbw),
                                   row.ceiling_percent > 0 ? number(row.ceiling_percent) : "",
                                   std::to_string(row.wrong),
                                   late_of(row)};
    if (soak) cells.insert(cells.begin(), fmt::format("{:.6g}", row.second.value_or(0)));
    table.row(cells, row.wrong > 0 ? first + 14 : SIZE_MAX);
  }
  return table.end() + left_out(record.rows.size(), most, soak ? "intervals" : "rows");
}

std::string pairs_of(const Record& record) {
  Table table({"from", "rank", "to", "rank", "bandwidth GB/s", "latency us", "outlier"},
              {1, 3, 4, 5});
  for (std::size_t i = 0; i < std::min(record.pairs.size(), most_table_rows); ++i) {
    const PairResult& pair = record.pairs[i];
    table.row({pair.from_host, std::to_string(pair.from_rank), pair.to_host,
               std::to_string(pair.to_rank), pair.bandwidth ? number(*pair.bandwidth) : "",
               pair.latency_us ? number(*pair.latency_us) : "", pair.outlier},
              pair.outlier.empty() ? SIZE_MAX : 6);
  }
  std::string findings;
  for (const std::string& finding : record.findings)
    findings += fmt::format("<li class=\"bad\">{}</li>\n", markup_text(finding));
  return (findings.empty() ? "" : "<ul>\n" + findings + "</ul>\n") + table.end() +
         left_out(record.pairs.size(), most_table_rows, "pairs");
}

std::string summary_of(const Record& record) {
  if (record.summary.empty()) return {};
  Table table({"operation", "size", "type", "place", "intervals", "calls", "min us", "p50 us",
               "p99 us", "max us", "drift % per hour", "wrong", "errors"},
              {4, 5, 6, 7, 8, 9, 10, 11, 12});
  for (const SoakSummary& row : record.summary)
    table.row({row.operation, base::describe_bytes(row.bytes), type_of(row.type, row.op),
               row.in_place ? "in" : "out", fmt::format("{}", row.intervals),
               fmt::format("{}", row.iterations), number(row.time.min_us), number(row.time.p50_us),
               number(row.time.p99_us), number(row.time.max_us),
               row.drift_percent_per_hour ? fmt::format("{:.2f}", *row.drift_percent_per_hour) : "",
               fmt::format("{}", row.wrong), fmt::format("{}", row.errors)},
              row.wrong > 0    ? 11
              : row.errors > 0 ? 12
                               : SIZE_MAX);
  return "<h3>Summary</h3>\n" + table.end();
}

// The record as it is in its file, within what the page may still hold.
std::string raw_of(const Record& record, std::size_t& room) {
  if (record.text.size() > room)
    return element("p", fmt::format("The record has {}, more than a page holds; it is the file {}.",
                                    base::describe_bytes(record.text.size()), record.path)) +
           "\n";
  room -= record.text.size();
  return fmt::format(
      "<details class=\"raw\"><summary>The record, {}</summary>\n<pre>{}</pre>"
      "</details>\n",
      base::describe_bytes(record.text.size()), markup_text(record.text));
}

std::string section_of(const Record& record, const std::string& name, std::size_t& room) {
  std::string text = element("h2", name) + "\n";
  text += element("p", fmt::format("{}: {}", record.path, describe(record))) + "\n";
  if (!record.complete)
    text += fmt::format("<p class=\"bad\">{}</p>\n",
                        markup_text("The run did not end: " + record.error));
  text += summary_of(record);
  text += element("h3", record.kind == "pairs"  ? "Pairs of hosts"
                        : record.kind == "soak" ? "Intervals"
                                                : "Results") +
          "\n";
  text += record.kind == "pairs" ? pairs_of(record) : rows_of(record);
  text += "<h3>Hosts</h3>\n" + hosts_of(record);
  text += "<h3>Setting and environment</h3>\n" + setting_of(record);
  return text + raw_of(record, room);
}

}  // namespace

std::string page_of(std::span<const Record> records) {
  const std::vector<std::string> names = names_of(records);
  const std::string title = "Rondo: " + join(names);
  // The policy forbids everything that would need a network, and scripts.
  std::string text = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n"
      "<meta charset=\"utf-8\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; img-src data:\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta name=\"generator\" content=\"rondo {}\"/>\n<link rel=\"icon\" href=\"data:,\"/>\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n{}\n",
      version(), markup_text(title), style, element("h1", title));
  for (const Picture& picture : pictures_of(records, Part::all))
    text += fmt::format(
        "<figure>\n{}</figure>\n",
        whole_svg(picture.elements, picture_width, picture.height, picture.described, false));
  std::size_t room = most_raw_bytes;
  for (std::size_t i = 0; i < records.size(); ++i) text += section_of(records[i], names[i], room);
  return text + "</body>\n</html>\n";
}

}  // namespace rondo::tools
