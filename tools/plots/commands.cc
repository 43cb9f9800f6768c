// SPDX-License-Identifier: Apache-2.0
//
// `rondo plot` and `rondo report`.
#include "tools/shared/commands.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "tools/plots/figures.h"
#include "tools/plots/page.h"
#include "tools/records/result_file.h"
#include "tools/shared/exit_status.h"
#include "tools/shared/output.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

struct PlotFlags {
  std::vector<std::string> records;
  std::string output;
  bool bandwidth = false, latency = false;
};

void check_output(const PlotFlags& flags) {
  for (const std::string& record : flags.records)
    if (is_one_file(record, flags.output))
      throw UsageError(base::printable(fmt::format(
          "-o {}: is the record {} itself, which would be lost; give the output another name",
          flags.output, record)));
}

void run_plot(const PlotFlags& flags) {
  check_output(flags);
  const std::vector<Record> records = read_records("rondo plot", flags.records);
  const Part part = flags.bandwidth ? Part::bandwidth : flags.latency ? Part::latency : Part::all;
  const std::vector<Picture> pictures = pictures_of(records, part);
  if (pictures.empty())
    throw UsageError(base::printable(fmt::format(
        "{}: no result that can be drawn; a run needs at least one row of a size above 0",
        join(flags.records))));
  write_report("-o", flags.output, one_below_the_other(pictures));
}

void run_page(const PlotFlags& flags) {
  check_output(flags);
  write_report("-o", flags.output, page_of(read_records("rondo report", flags.records)));
}

CLI::App* add_command(CLI::App& app, const char* name, const char* text, const char* output,
                      PlotFlags& flags) {
  auto* command = app.add_subcommand(name, text);
  command->add_option("records", flags.records, "Records of rondo bench --json")
      ->type_name("")
      ->required();
  command->add_option("-o,--output", flags.output, output)->type_name("")->required();
  return command;
}

}  // namespace

void add_plot(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PlotFlags>();
  auto* command = add_command(
      app, "plot",
      "Draw records of rondo bench as SVG: bandwidth and time over size, soaks over time",
      "The picture to write; - is the standard output", *flags);
  auto* bandwidth = command->add_flag("--bandwidth", flags->bandwidth, "Only the bandwidth");
  command->add_flag("--latency", flags->latency, "Only the times")->excludes(bandwidth);
  command->callback([flags, &exit_code] {
    exit_code = exit_fine;
    run_plot(*flags);
  });
}

void add_report(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<PlotFlags>();
  auto* command =
      add_command(app, "report",
                  "Write one HTML page of records: pictures, tables, machines; it needs no network",
                  "The page to write; - is the standard output", *flags);
  command->callback([flags, &exit_code] {
    exit_code = exit_fine;
    run_page(*flags);
  });
}

}  // namespace rondo::tools
