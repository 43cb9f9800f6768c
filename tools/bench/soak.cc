// SPDX-License-Identifier: Apache-2.0
//
// A soak goes through its rows again and again, an interval each, until the time is over or a
// signal comes. All ranks choose the same number of iterations, so they end together.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "tools/bench/bench.h"
#include "tools/bench/histogram.h"
#include "tools/bench/report.h"
#include "tools/late/clocks.h"
#include "tools/measure/measure.h"
#include "tools/records/write.h"
#include "tools/shared/agree.h"
#include "tools/shared/exit_status.h"
#include "tools/shared/output.h"

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double seconds_between_stores = 10, least_drift_seconds = 60;

// One row that intervals measure, and what they have found.
struct Series {
  Operation operation = Collective::all_reduce;
  Variant variant;
  std::uint64_t bytes = 0;
  double cost = 0;  // seconds of an iteration in its last interval; 0: not known yet
  Histogram times{};
  std::vector<double> at{}, p50_us{};  // of each interval
  std::uint64_t iterations = 0, wrong = 0;
  std::uint64_t faulty = 0;  // intervals that have a fault
  std::string fault{};       // of the last of them
  std::string name{};        // of the row, once one was measured
};

// No value before a minute: noise would look like a drift.
std::optional<double> drift_of(const Series& series) {
  if (series.at.empty() || series.at.back() - series.at.front() < least_drift_seconds) return {};
  return drift_percent_per_hour(series.at, series.p50_us);
}

// One rank of a soak. The main thread calls run() once.
class Soak {
 public:
  explicit Soak(Session& session)
      : session_(session),
        options_(session.options()),
        clocks_(session.communicator()),
        measurement_(
            session.communicator(),
            Iterations::Context{session.setting().conditions, session.stop(), clocks_},
            options_.most_calls(), [](std::uint64_t, std::uint64_t) {}, session.stream()) {}
  int run();

 private:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  void list_series();
  void begin();
  bool measure_interval(Series& series);
  void tell(Series& series, const Row& row, double second);
  void print_interval(const Row& row, double second) const;
  void print_summary();
  Json summary_of(const Series& series) const;
  void sum_up();
  int verdict() const;

  Session& session_;
  const BenchOptions& options_;
  Clocks clocks_;
  Measurement measurement_;
  std::vector<Series> series_;
  Clock::time_point begin_ = Clock::now();
  double left_ = 0;    // seconds until the end, the same on all ranks
  double stored_ = 0;  // when the files were written last, in seconds
};

void Soak::list_series() {
  for (const Operation& operation : options_.operations)
    for (const Variant& variant : options_.variants_of(operation))
      for (const std::uint64_t bytes : options_.sizes_of(operation))
        series_.push_back({operation, variant, bytes});
}

constexpr std::string_view interval_columns =
    "{:>9} {:>16} {:>11} {:>7} {:>10} {:>9} {:>9} {:>10} {:>8} {:>6} {:>13}";

void Soak::begin() {
  session_.describe(fmt::format("soak of {}", describe_time_left(*options_.seconds - 1)));
  session_.deliver([&] {
    std::vector<std::string> columns = columns_of(session_.setting());
    columns.insert(columns.begin(), "second");
    session_.record().begin(head_of(session_.setting(), "soak"), std::move(columns));
    if (!session_.shows_table()) return;
    print(
        "# a line is an interval; p50 and p99: of its iterations; late: the rank that called "
        "last most often\n#\n");
    print_title(interval_columns, "second", "operation", "size", "type", "iterations", "p50", "p99",
                "max", "busbw", "#wrong", "late");
    print_title(interval_columns, "(s)", "", "(B)", "", "", "(us)", "(us)", "(us)", "(GB/s)", "",
                "");
    flush_output();
  });
}

void Soak::print_interval(const Row& row, double second) const {
  print_row(interval_columns, fmt::format("{:.1f}", second), name_of(row.operation), row.bytes,
            name_of(row.type), row.iterations, short_number(row.time.p50_us),
            short_number(row.time.p99_us), short_number(row.time.max_us),
            fmt::format("{:.3f}", row.busbw), wrong_of(session_.setting(), row),
            describe_late(row));
  flush_output();
}

// Rank 0 alone keeps what an interval has found.
void Soak::tell(Series& series, const Row& row, double second) {
  for (const double us : row.times_us) series.times.add(us);
  series.at.push_back(second);
  series.p50_us.push_back(row.time.p50_us);
  Json json{{"second", rounded(second, 1e3)}};
  // Members for each rank would make an hour of many ranks too large.
  Json members = row_of(session_.setting(), row);
  for (const char* member : {"rank_p50_us", "rank_last_share", "rank_behind_us"})
    members.erase(member);
  json.update(members);
  session_.record().add(json);
  if (seconds() - stored_ >= seconds_between_stores) {
    session_.record().store();
    stored_ = seconds();
  }
  if (session_.shows_table()) print_interval(row, second);
}

bool Soak::measure_interval(Series& series) {
  const double second = seconds();
  measurement_.choose(series.operation, series.variant);
  session_.progress().show(fmt::format("{} left", describe_time_left(*options_.seconds - second)));
  // As many iterations as fit. All ranks choose the same number.
  std::uint64_t iterations = 0;
  if (series.cost > 0)
    iterations = std::max<std::uint64_t>(
        1, static_cast<std::uint64_t>(std::min(options_.interval, left_) / series.cost));
  const Row row = measurement_.measure(series.bytes, false, iterations);
  session_.progress().erase();
  std::array<double, 2> agreed{(seconds() - second) / static_cast<double>(row.iterations),
                               seconds()};
  maximum_over_ranks(session_.communicator(), agreed);
  series.cost = agreed[0];
  left_ = *options_.seconds - agreed[1];
  series.name = describe_row(row);
  if (const auto place = series.name.find(", out of place"); place != std::string::npos)
    series.name.resize(place);
  if (row.root >= 0) series.name += fmt::format(", root {}", row.root);
  series.iterations += row.iterations;
  series.wrong += row.wrong;
  const std::vector<std::string> faults = faults_of(row, options_);
  if (!faults.empty()) {
    ++series.faulty;
    series.fault = faults.back();
  }
  session_.deliver([&] { tell(series, row, second); });
  return session_.goes_on() && left_ > 0;
}

Json Soak::summary_of(const Series& series) const {
  const auto us = [](double value) { return rounded(value, 1e3); };
  const auto& [type, op, root] = series.variant;
  const auto drift = drift_of(series);
  return {{"operation", name_of(series.operation)},
          {"bytes", series.bytes},
          {"type", name_of(type)},
          {"op", series.operation.traits().reduces ? name_of(op) : "none"},
          {"root", series.operation.traits().rooted() ? root : -1},
          {"in_place", false},
          {"intervals", series.at.size()},
          {"iterations", series.iterations},
          {"min_us", us(series.times.min_us())},
          {"p50_us", us(series.times.percentile(0.5))},
          {"p99_us", us(series.times.percentile(0.99))},
          {"max_us", us(series.times.max_us())},
          {"drift_percent_per_hour", drift ? Json(rounded(*drift, 10)) : Json()},
          {"wrong", series.wrong},
          {"errors", series.faulty}};
}

void Soak::print_summary() {
  print("#\n# over all intervals ({:.0f} s):\n", seconds());
  constexpr auto columns = "# {:>45} {:>11} {:>9} {:>9} {:>9} {:>10} {:>10} {:>6}\n";
  print(columns, "row", "iterations", "min", "p50", "p99", "max", "drift", "#wrong");
  print(columns, "", "", "(us)", "(us)", "(us)", "(us)", "(%/h)", "");
  for (const Series& series : series_) {
    if (series.at.empty()) continue;
    const auto drift = drift_of(series);
    print(columns, series.name, series.iterations, short_number(series.times.min_us()),
          short_number(series.times.percentile(0.5)), short_number(series.times.percentile(0.99)),
          short_number(series.times.max_us()), drift ? fmt::format("{:+.1f}", *drift) : "-",
          series.wrong);
  }
  flush_output();
}

// Writes the summary, also of a soak that ended early or whose output is closed.
void Soak::sum_up() {
  if (!session_.is_first()) return;
  Json summaries = Json::array();
  for (const Series& series : series_)
    if (!series.at.empty()) summaries.push_back(summary_of(series));
  session_.record().set_tail({{"seconds", rounded(seconds(), 1e3)}, {"summary", summaries}});
  session_.deliver([&] {
    if (session_.shows_table()) print_summary();
  });
}

int Soak::verdict() const {
  int status = exit_fine;
  for (const Series& series : series_) {
    if (series.faulty == 0) continue;
    if (session_.is_first())
      say("rondo bench: {}: {} of {} intervals failed, the last with {}\n", series.name,
          series.faulty, series.at.size(), series.fault);
    status = exit_missed;
  }
  return status;
}

int Soak::run() {
  list_series();
  begin();
  try {
    clocks_.mark();
    begin_ = Clock::now();
    left_ = *options_.seconds;
    bool goes_on = session_.goes_on();
    for (std::size_t i = 0; goes_on; i = (i + 1) % series_.size())
      goes_on = measure_interval(series_[i]);
  } catch (const std::exception&) {
    sum_up();
    throw;
  }
  sum_up();
  session_.deliver([&] {
    if (!session_.ended_early()) session_.record().finish();
  });
  return session_.end(verdict());
}

}  // namespace

int run_soak(Session& session) {
  return Soak(session).run();
}

}  // namespace rondo::tools
