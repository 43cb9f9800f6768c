// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "base/text.h"
#include "tools/bench/report.h"
#include "tools/ceilings/ceiling.h"
#include "tools/late/clocks.h"
#include "tools/measure/measure.h"
#include "tools/records/result_file.h"
#include "tools/records/write.h"
#include "tools/shared/exit_status.h"
#include "tools/shared/output.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

// One rank of a benchmark. The main thread calls run() once.
class Bench {
 public:
  explicit Bench(Session& session)
      : session_(session),
        options_(session.options()),
        clocks_(session.communicator()),
        measurement_(
            session.communicator(),
            Iterations::Context{session.setting().conditions, session.stop(), clocks_},
            options_.most_calls(),
            [this](std::uint64_t iteration, std::uint64_t of) { show_progress(iteration, of); },
            session.stream()) {}
  int run();

 private:
  void show_progress(std::uint64_t iteration, std::uint64_t of);
  std::size_t count_rows() const;
  bool measure_all();
  bool measure_operation(const Operation& operation);
  bool measure_size(std::uint64_t bytes, bool in_place_too);
  double measure_ceiling(const Row& row);
  void end(bool whole);
  int verdict() const;

  Session& session_;
  const BenchOptions& options_;
  Clocks clocks_;
  Measurement measurement_;
  std::string now_;                              // what is being measured, for the progress line
  std::chrono::steady_clock::time_point began_;  // its first timed iteration
  std::size_t rows_expected_ = 0;
  std::vector<Row> rows_;
  ChosenCeiling chosen_;
  bool trouble_told_ = false;
};

void Bench::show_progress(std::uint64_t iteration, std::uint64_t of) {
  if (!session_.progress().active()) return;
  const auto now = std::chrono::steady_clock::now();
  if (iteration == 0) began_ = now;
  std::string left;
  const double spent = std::chrono::duration<double>(now - began_).count();
  if (iteration > 0 && spent > 1) {
    const double more =
        spent / static_cast<double>(iteration) * static_cast<double>(of - iteration);
    left = fmt::format(", {} left", describe_time_left(more));
  }
  session_.progress().show(fmt::format("{} (row {} of {}): iteration {} of {}{}", now_,
                                       rows_.size() + 1, rows_expected_, iteration + 1, of, left));
}

// Measures the ceiling of such a row now. When it cannot, it returns 0 and reports the cause once.
double Bench::measure_ceiling(const Row& row) {
  session_.progress().show(fmt::format("{}: the ceiling ({})", now_, name_of(chosen_.of)));
  const double rate = chosen_.ceiling->measure(row);
  if (rate <= 0 && !std::exchange(trouble_told_, true) && !chosen_.ceiling->trouble().empty())
    say("rondo bench: rank {}: the ceiling was not measured: {}\n", session_.communicator().rank(),
        chosen_.ceiling->trouble());
  return rate;
}

bool Bench::measure_size(std::uint64_t bytes, bool in_place_too) {
  const Row described = measurement_.describe(bytes, false);
  now_ = fmt::format("{} {}", name_of(described.operation), base::describe_bytes(bytes));
  const bool held = chosen_.ceiling && described.bytes > 0;
  const double before = held ? measure_ceiling(described) : 0;
  Row out_of_place = measurement_.measure(bytes, false);
  std::optional<Row> in_place;
  if (in_place_too && !out_of_place.cut_short) in_place = measurement_.measure(bytes, true);
  if (held) {
    const double after = measure_ceiling(described);
    // When one of the two failed there is no ceiling.
    out_of_place.ceiling = before > 0 && after > 0 ? std::max(before, after) : 0;
    out_of_place.ceiling_of = chosen_.of;
  }
  rows_.push_back(out_of_place);
  if (in_place) {
    in_place->ceiling = out_of_place.ceiling;
    in_place->ceiling_of = out_of_place.ceiling_of;
    rows_.push_back(*in_place);
  }
  session_.progress().erase();
  session_.deliver([&] {
    const Setting& setting = session_.setting();
    session_.record().add(row_of(setting, out_of_place));
    if (in_place) session_.record().add(row_of(setting, *in_place));
    session_.record().store();
    if (session_.shows_table()) print_rows(setting, session_.form(), out_of_place, in_place);
  });
  return session_.goes_on();
}

bool Bench::measure_operation(const Operation& operation) {
  Communicator& communicator = session_.communicator();
  chosen_ = {};
  if (options_.ceiling)
    chosen_ = choose_ceiling(
        {communicator, options_.connect, options_.conditions, session_.setting().transport,
         session_.gpu(), measurement_.in(), measurement_.out()},
        operation);
  session_.deliver([&] {
    if (session_.shows_table())
      print_header(session_.setting(), session_.form(), operation, chosen_.of);
  });
  for (const Variant& variant : options_.variants_of(operation)) {
    measurement_.choose(operation, variant);
    for (const std::uint64_t bytes : options_.sizes_of(operation))
      if (!measure_size(bytes, operation.has_in_place())) return false;
  }
  return true;
}

std::size_t Bench::count_rows() const {
  std::size_t rows = 0;
  for (const Operation& operation : options_.operations)
    rows += options_.variants_of(operation).size() * options_.sizes_of(operation).size() *
            (operation.has_in_place() ? 2 : 1);
  return rows;
}

bool Bench::measure_all() {
  rows_expected_ = count_rows();
  clocks_.mark();
  if (!session_.goes_on()) return false;
  for (const Operation& operation : options_.operations)
    if (!measure_operation(operation)) return false;
  session_.communicator().barrier().wait();
  return true;
}

int Bench::verdict() const {
  int status = exit_fine;
  for (const Row& row : rows_)
    for (const std::string& fault : faults_of(row, options_)) {
      if (session_.is_first()) say("rondo bench: {}: {}\n", describe_row(row), fault);
      status = exit_missed;
    }
  return status;
}

// Writes what comes after the last row.
void Bench::end(bool whole) {
  session_.deliver([&] {
    if (session_.shows_table()) {
      print_summary(session_.setting(), rows_);
      if (options_.stragglers) print_stragglers(session_.setting(), rows_);
    }
    if (!whole) return;
    session_.record().finish();
    if (!options_.constants.empty())
      write_report("--write-constants", options_.constants,
                   format_constants(session_.communicator().constants()));
  });
}

int Bench::run() {
  std::vector<std::string> names;
  for (const Operation& operation : options_.operations) names.emplace_back(name_of(operation));
  session_.describe(join(names));
  session_.deliver([&] {
    session_.record().begin(head_of(session_.setting(), "bench"), columns_of(session_.setting()));
  });
  const bool whole = measure_all();
  end(whole);
  return session_.end(verdict());
}

}  // namespace

int run_bench(Session& session) {
  return Bench(session).run();
}

std::vector<std::string> faults_of(const Row& row, const BenchOptions& options) {
  std::vector<std::string> faults;
  if (row.wrong > 0) faults.push_back(fmt::format("{} wrong elements", row.wrong));
  const bool bounded = options.min_bandwidth && row.bytes > 0 && row.operation.has_bandwidth();
  if (bounded && row.busbw < *options.min_bandwidth)
    faults.push_back(fmt::format("{:.4g} GB/s bus bandwidth, below --min-bandwidth {:.4g}",
                                 row.busbw, *options.min_bandwidth));
  const double p50 = (row.latency ? *row.latency : row.time).p50_us;
  if (options.max_latency && row.operation.has_latency() && p50 > *options.max_latency * 1e6)
    faults.push_back(fmt::format("p50 of {}, above --max-latency {}", format_seconds(p50 / 1e6),
                                 format_seconds(*options.max_latency)));
  return faults;
}

}  // namespace rondo::tools
