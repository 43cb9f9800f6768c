// SPDX-License-Identifier: Apache-2.0
//
// The table of `rondo bench`, row by row. The lines above it say what the columns mean, because
// that depends on the operation; the lines below it say what stands out.
#include "tools/bench/report.h"

#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include "base/text.h"
#include "tools/shared/lists.h"
#include "tools/shared/output.h"
#include "tools/shared/text.h"

namespace rondo::tools {
std::string short_number(double value) {
  if (value >= 100'000) return fmt::format("{:.0f}", value);
  if (value >= 1'000) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

std::string wrong_of(const Setting& setting, const Row& row) {
  return setting.conditions.check ? std::to_string(row.wrong) : "N/A";
}

std::string describe_late(const Row& row) {
  if (!row.late) return "-";
  const double us = row.late->late_us;
  const std::string by = us >= 999.5e3   ? fmt::format("{:.1f}s", us / 1e6)
                         : us >= 99.95e3 ? fmt::format("{:.0f}ms", us / 1e3)
                         : us >= 999.5   ? fmt::format("{:.1f}ms", us / 1e3)
                                         : fmt::format("{:.0f}us", us);
  return fmt::format("{} {:.0f}% {}", row.late->rank, 100 * row.late->share, by);
}

namespace {

std::string gigabytes(double rate) {
  return rate >= 1000 ? fmt::format("{:.1f}", rate) : fmt::format("{:.3f}", rate);
}

std::string percent(const Row& row) {
  const double reached = percent_of_ceiling(row);
  return reached > 0 ? fmt::format("{:.0f}", reached) : "-";
}

std::string half(const Setting& setting, const Row& row) {
  return fmt::format(" {:>9} {:>9} {:>9} {:>7} {:>7} {:>7} {:>6} {:>10}",
                     short_number(row.time.mean_us), short_number(row.time.p50_us),
                     short_number(row.time.p99_us), gigabytes(row.algbw), gigabytes(row.busbw),
                     percent(row), wrong_of(setting, row), row.algorithm);
}

std::string latency_half(const Times& latency) {
  return fmt::format(" {:>9} {:>9} {:>9}", short_number(latency.mean_us),
                     short_number(latency.p50_us), short_number(latency.p99_us));
}

// The meaning of %ceil for each kind of ceiling, and the reason why a row may exceed it.
struct CeilingWords {
  std::string_view meaning, excess;
};
constexpr std::string_view faster_meanwhile =
    "the machine was faster during the row than before and after it";
constexpr std::array<CeilingWords, 6> words_of_ceilings{
    {{},
     {"busbw in percent of what plain TCP sockets reach over the same links at once; measured\n"
      "#   before and after each row, the better of both",
      faster_meanwhile},
     {"what the operation must load and store (rondo bench --help) over p50, in percent of what "
      "all ranks\n#   reach when they memcpy as much at once; measured before and after each row, "
      "the better of both",
      "ranks loaded from a cache that they share, or the machine was faster during the row"},
     {"busbw in percent of what an all-reduce reaches that does nothing but bring data from core "
      "to\n#   core and sum it; measured before and after each row, the better of both",
      "Rondo found a better way, or the machine was faster during the row"},
     {"busbw in percent of what the RDMA devices of these ranks write at once without Rondo; "
      "measured\n#   before and after each row, the better of both",
      faster_meanwhile},
     {"what the operation must load and store (rondo bench --help) over p50, in percent of what "
      "copies of\n#   {} within the GPUs reach; measured before and after each row, the better of "
      "both",
      "the data was in a cache of the GPU, or the GPU was faster during the row"}}};

const CeilingWords& words_of(CeilingOf ceiling_of) {
  return words_of_ceilings[static_cast<std::size_t>(ceiling_of)];
}

// Rows above their ceiling say nothing of how near the others came, so they are counted apart.
void print_ceilings(const std::vector<Row>& rows) {
  double least = INFINITY, most = 0, sum = 0, best = 0, beyond = 0;
  std::size_t count = 0, above = 0, without = 0;
  CeilingOf exceeded = CeilingOf::none;
  for (const Row& row : rows) {
    const double reached = percent_of_ceiling(row);
    without += exceeds_sockets(row) ? 1 : 0;
    if (reached <= 0) continue;
    least = std::min(least, row.ceiling);
    most = std::max(most, row.ceiling);
    ++count;
    // Less than half a percent above is noise of the measurement, and is shown as 100.
    if (reached >= 100.5) {
      ++above;
      beyond = std::max(beyond, reached);
      exceeded = row.ceiling_of;
      continue;
    }
    sum += reached;
    best = std::max(best, reached);
  }
  if (without > 0)
    print(
        "# No %ceil             : {} rows were more than 1.5 times as fast as the sockets: the "
        "links let short bursts pass, or their rate changed\n",
        without);
  if (count == 0) return;
  print("# Ceiling              : {:.4f} to {:.4f} GB/s{}\n", least, most,
        count == above ? ""
                       : fmt::format("; %ceil on average {:.1f}, at most {:.1f}",
                                     sum / static_cast<double>(count - above), best));
  if (above > 0)
    print("# Above 100 %ceil      : {} of {}, up to {:.2f} times the ceiling:\n#   {}\n", above,
          count, beyond / 100, words_of(exceeded).excess);
}

// Prints the meaning of times where it depends on the operation.
void explain_times(const Setting& setting, Form form, const Operation& operation) {
  const std::uint64_t calls = setting.conditions.calls_of(operation);
  const std::string messages = calls == 1 ? "1 message" : fmt::format("{} messages", calls);
  if (operation == Operation::one_way())
    print(
        "# stream: rank 0 sends {} to rank 1 at once, which answers when it has all; times are "
        "those of one\n#   message: an iteration over {}\n# ping-pong: half of the round trip of "
        "one message from rank 0 to rank 1 and back; latency is its mean\n",
        messages, calls);
  else if (operation == Operation::latency())
    print("# latency: half of the round trip of one message from rank 0 to rank 1 and back\n");
  else if (operation == Operation::bandwidth())
    print("# bandwidth: rank 0 sends {} to rank 1 at once, which answers when it has all\n",
          messages);
  else if (operation == Operation::bibandwidth())
    print(
        "# bibandwidth: ranks 0 and 1 send {} to each other at once, and answer when they have "
        "all;\n#   bandwidth and messages are the sums of both directions\n",
        messages);
  else if (operation == Operation::rate())
    print(
        "# rate: each rank of the first half sends {} at once to its partner in the second, "
        "which answers\n#   when it has all; bandwidth and messages are the sums of all pairs\n",
        messages);
  if (operation.windowed() && operation != Operation::one_way())
    print("# times are those of one message: an iteration over {}\n", calls);
  if (operation.between_pairs()) {
    print("# {}each iteration is timed on {}; 1 GB = 1e9 B\n",
          operation == Operation::one_way() ? "time: mean of the iterations, " : "",
          operation == Operation::rate()          ? "the slowest sender"
          : operation == Operation::bibandwidth() ? "the slower rank"
                                                  : "rank 0");
    return;
  }
  print(
      "# {}each iteration is the time of its slowest rank; algbw and busbw: from p50; 1 GB = 1e9 "
      "B\n",
      form == Form::wide ? "time: mean; " : "");
  if (form == Form::narrow && setting.ranks > 1)
    print(
        "# transf: p50 from the last rank's call to the end; late: the rank that called last most "
        "often, in how many\n#   percent of the iterations, and how long after the median of the "
        "others\n");
}

void explain_ceiling(const Setting& setting, CeilingOf ceiling_of) {
  if (ceiling_of == CeilingOf::none) return;
  const std::size_t copied = setting.gpu != nullptr ? setting.gpu->copy_bytes() : 0;
  print("# %ceil: {}\n",
        fmt::format(fmt::runtime(words_of(ceiling_of).meaning), base::describe_bytes(copied)));
}

// The lines above one half of the table.
struct Titles {
  std::string half, names, units;
};

Titles titles_of_calls(CeilingOf ceiling_of, std::string half) {
  constexpr auto columns = " {:>9} {:>9} {:>9} {:>7} {:>7} {:>7} {:>6} {:>10}";
  return {
      std::move(half),
      fmt::format(columns, "time", "p50", "p99", "algbw", "busbw", "%ceil", "#wrong", "algorithm"),
      fmt::format(columns, "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)",
                  ceiling_of == CeilingOf::none ? "" : name_of(ceiling_of), "", "")};
}

Titles titles_of_latency() {
  constexpr auto columns = " {:>9} {:>9} {:>9}";
  return {fmt::format(columns, "", "ping-pong", ""), fmt::format(columns, "latency", "p50", "p99"),
          fmt::format(columns, "(us)", "(us)", "(us)")};
}

// A line for each size, with both halves.
void print_wide_header(const Operation& operation, CeilingOf ceiling_of) {
  const bool one_way = operation == Operation::one_way();
  const Titles left = titles_of_calls(ceiling_of, one_way ? "stream" : "out-of-place");
  const Titles right = one_way                    ? titles_of_latency()
                       : operation.has_in_place() ? titles_of_calls(ceiling_of, "in-place")
                                                  : Titles{};
  print("#\n#{:>53} {:^71} {:^71}\n", "", left.half, right.half);
  print("#{:>11} {:>13} {:>7} {:>8} {:>5}   {} {}\n", "size", "count", "type", "redop", "root",
        left.names, right.names);
  print("#{:>11} {:>13} {:>7} {:>8} {:>5}   {} {}\n", "(B)", "(elements)", "", "", "", left.units,
        right.units);
}

constexpr std::string_view pair_columns =
    "{:>11} {:>7} {:>7} {:>9} {:>9} {:>9} {:>9} {:>12} {:>7} {:>6}";
constexpr std::string_view latency_columns =
    "{:>11} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>6}";
constexpr std::string_view call_columns =
    "{:>11} {:>7} {:>8} {:>4} {:>5} {:>10} {:>8} {:>8} {:>8} {:>7} {:>7} {:>5} {:>6} {:>12}";

void print_narrow_header(const Operation& operation, CeilingOf ceiling_of) {
  const std::string_view ceiling = ceiling_of == CeilingOf::none ? "" : name_of(ceiling_of);
  print("#\n");
  if (operation == Operation::latency()) {
    print_title(latency_columns, "size", "type", "mean", "min", "p50", "p90", "p99", "max",
                "#wrong");
    print_title(latency_columns, "(B)", "", "(us)", "(us)", "(us)", "(us)", "(us)", "(us)", "");
    return;
  }
  if (operation.between_pairs()) {
    print_title(pair_columns, "size", "type", "window", "mean", "p50", "p99", "bandwidth",
                "messages", "%ceil", "#wrong");
    print_title(pair_columns, "(B)", "", "", "(us)", "(us)", "(us)", "(GB/s)", "(1/s)", ceiling,
                "");
    return;
  }
  print_title(call_columns, "size", "type", "redop", "root", "place", "algorithm", "p50", "p99",
              "transf", "algbw", "busbw", "%ceil", "#wrong", "late");
  print_title(call_columns, "(B)", "", "", "", "", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)",
              ceiling.substr(0, 5), "", "");
}

void print_latency(const Setting& setting, const Row& row) {
  const Times& time = row.time;
  print_row(latency_columns, row.bytes, name_of(row.type), short_number(time.mean_us),
            short_number(time.min_us), short_number(time.p50_us), short_number(time.p90_us),
            short_number(time.p99_us), short_number(time.max_us), wrong_of(setting, row));
}

void print_narrow(const Setting& setting, const Row& row) {
  if (row.operation == Operation::latency()) {
    print_latency(setting, row);
    return;
  }
  if (row.operation.between_pairs()) {
    print_row(pair_columns, row.bytes, name_of(row.type), row.calls, short_number(row.time.mean_us),
              short_number(row.time.p50_us), short_number(row.time.p99_us), gigabytes(row.algbw),
              row.rate > 0 ? fmt::format("{:.0f}", row.rate) : "-", percent(row),
              wrong_of(setting, row));
    return;
  }
  print_row(call_columns, row.bytes, name_of(row.type), op_name(row),
            row.root < 0 ? "-" : std::to_string(row.root),
            !row.operation.has_in_place() ? "-"
            : row.in_place                ? "in"
                                          : "out",
            row.algorithm, short_number(row.time.p50_us), short_number(row.time.p99_us),
            row.late ? short_number(row.late->transfer_us) : "-", gigabytes(row.algbw),
            gigabytes(row.busbw), percent(row), wrong_of(setting, row), describe_late(row));
}

// The table of sendrecv --one-way has both measurements in a line, in either form.
bool is_wide(Form form, const Operation& operation) {
  return operation == Operation::one_way() || (form == Form::wide && !operation.between_pairs());
}

}  // namespace

void print_header(const Setting& setting, Form form, const Operation& operation,
                  CeilingOf ceiling_of) {
  if (setting.operations.size() > 1) print("#\n# {}\n", name_of(operation));
  const auto explained = [&](const Operation& earlier) {
    return !earlier.between_pairs() && !operation.between_pairs();
  };
  const auto end = std::ranges::find(setting.operations, operation);
  if (std::none_of(setting.operations.begin(), end, explained))
    explain_times(setting, form, operation);
  explain_ceiling(setting, ceiling_of);
  if (is_wide(form, operation))
    print_wide_header(operation, ceiling_of);
  else
    print_narrow_header(operation, ceiling_of);
  flush_output();
}

void print_rows(const Setting& setting, Form form, const Row& out_of_place,
                const std::optional<Row>& in_place) {
  if (is_wide(form, out_of_place.operation)) {
    std::string right;
    if (in_place) right = half(setting, *in_place);
    if (out_of_place.latency) right = latency_half(*out_of_place.latency);
    print("{:>12} {:>13} {:>7} {:>8} {:>5}   {} {}\n", out_of_place.bytes, out_of_place.count,
          name_of(out_of_place.type), op_name(out_of_place), out_of_place.root,
          half(setting, out_of_place), right);
  } else {
    print_narrow(setting, out_of_place);
    if (in_place) print_narrow(setting, *in_place);
  }
  flush_output();
}

void print_summary(const Setting& setting, const std::vector<Row>& rows) {
  std::uint64_t wrong = 0;
  double sum = 0;
  std::size_t with_bandwidth = 0;
  for (const Row& row : rows) {
    wrong += row.wrong;
    sum += row.busbw;
    if (row.operation != Operation::latency()) ++with_bandwidth;
  }
  if (setting.conditions.check)
    print("# Wrong elements       : {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED");
  else
    print("# Wrong elements       : not checked\n");
  if (with_bandwidth > 0 || rows.empty())
    print("# Avg bus bandwidth    : {:.4f} GB/s\n",
          sum / static_cast<double>(std::max<std::size_t>(with_bandwidth, 1)));
  print_ceilings(rows);
  flush_output();
}

void print_stragglers(const Setting& setting, const std::vector<Row>& rows) {
  struct Straggler {
    int rank = 0;
    double share = 0, behind_us = 0;
  };
  std::vector<Straggler> ranks(static_cast<std::size_t>(setting.ranks));
  double judged = 0, error = 0;
  for (const Row& row : rows) {
    if (!row.late) continue;
    ++judged;
    error = std::max(error, row.late->clock_error_us);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      ranks[rank].share += row.late->last_share[rank];
      ranks[rank].behind_us += row.late->behind_us[rank];
    }
  }
  if (judged == 0) {
    print("# Stragglers           : not known; there was no call of several ranks\n");
    return;
  }
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) ranks[rank].rank = static_cast<int>(rank);
  std::ranges::stable_sort(ranks, std::ranges::greater{}, &Straggler::behind_us);
  print("# Stragglers           : means over {} rows; clocks are compared to {:.1f} us\n", judged,
        error);
  print("#{:>7} {:>8} {:>13}  {}\n", "rank", "last in", "behind others", "host");
  for (const Straggler& rank : ranks) {
    std::string_view host;
    for (const HostRecord& one : setting.hosts)
      if (contains(one.ranks, rank.rank)) host = one.name;
    print("#{:>7} {:>6.0f} % {:>10.1f} us  {}\n", rank.rank, 100 * rank.share / judged,
          rank.behind_us / judged, host);
  }
  flush_output();
}

std::string describe_calls(const Setting& setting) {
  const Conditions& conditions = setting.conditions;
  const auto& operations = setting.operations;
  std::string text;
  if (std::ranges::any_of(operations, &Operation::windowed))
    text = fmt::format(", window of {}", conditions.window);
  if (conditions.in_a_row > 1 && !std::ranges::all_of(operations, &Operation::between_pairs))
    text += fmt::format(", {} calls in a row", conditions.in_a_row);
  if (operations != std::vector<Operation>{Collective::barrier})
    text += conditions.writes_anew() ? ", inputs written anew" : ", inputs used again";
  if (conditions.allocate) text += ", buffers from Communicator::allocate";
  return text;
}

std::string describe_time_left(double seconds) {
  const auto whole = static_cast<std::uint64_t>(std::clamp(seconds, 0.0, 1e9)) + 1;
  if (whole < 100) return fmt::format("{} s", whole);
  const std::uint64_t minutes = (whole + 59) / 60;
  if (minutes < 100) return fmt::format("{} min", minutes);
  return fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

Progress::Progress(bool wanted) : active_(wanted && ::isatty(STDERR_FILENO) == 1) {}

void Progress::show(const std::string& text) {
  const auto now = std::chrono::steady_clock::now();
  if (!active_ || now < next_) return;
  say("\r{}\033[K", text);
  shown_ = true;
  next_ = now + std::chrono::milliseconds(100);
}

void Progress::erase() {
  if (!shown_) return;
  say("\r\033[K");
  shown_ = false;
}

}  // namespace rondo::tools
