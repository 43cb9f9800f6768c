// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/report.h"

#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/text.h"
#include "tools/output.h"
#include "tools/text.h"

namespace rondo::tools {
namespace {

// Prints fewer decimals for larger values, so that all values fit into their column.
std::string short_number(double value) {
  if (value >= 100'000) return fmt::format("{:.0f}", value);
  if (value >= 1'000) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

std::string half(const Setting& setting, const Row& row) {
  const double reached = percent_of_ceiling(setting, row);
  const std::string percent = reached > 0 ? fmt::format("{:.0f}", reached) : "-";
  return fmt::format(" {:>9} {:>9} {:>9} {:>7.3f} {:>7.3f} {:>7} {:>6}",
                     short_number(row.time.mean_us), short_number(row.time.p50_us),
                     short_number(row.time.p99_us), row.algbw, row.busbw, percent,
                     setting.checked ? std::to_string(row.wrong) : "N/A");
}

std::string latency_half(const Times& latency) {
  return fmt::format(" {:>9} {:>9} {:>9}", short_number(latency.mean_us),
                     short_number(latency.p50_us), short_number(latency.p99_us));
}

}  // namespace

double percent_of_ceiling(const Setting& setting, const Row& row) {
  if (row.ceiling <= 0 || row.bytes == 0 || row.time.p50_us <= 0) return 0;
  const bool of_traffic =
      setting.ceiling_of == CeilingOf::memcpy || setting.ceiling_of == CeilingOf::gpu;
  const double rate = of_traffic ? row.traffic / row.time.p50_us / 1e3 : row.busbw;
  return 100 * rate / row.ceiling;
}

CeilingOf ceiling_of(const Setting& setting, const Row& row) {
  return row.ceiling > 0 ? setting.ceiling_of : CeilingOf::none;
}

std::string op_name(const Setting& setting, const Row& row) {
  return setting.reduces ? std::string(name_of(row.op)) : "none";
}

namespace {

// Says why a row may exceed its ceiling.
std::string_view explain_excess(const Setting& setting) {
  if (setting.ceiling_of == CeilingOf::cores)
    return "Rondo found a better way, or the machine was faster during the row";
  if (setting.ceiling_of == CeilingOf::memcpy)
    return "ranks loaded from a cache that they share, or the machine was faster during the row";
  if (setting.ceiling_of == CeilingOf::gpu)
    return "the data was in a cache of the GPU, or the GPU was faster during the row";
  return "the machine was faster during the row than before and after it";
}

void print_ceilings(const Setting& setting, const std::vector<Row>& rows) {
  double least = 0, most = 0, sum = 0, best = 0;
  std::size_t count = 0, above = 0;
  for (const Row& row : rows) {
    const double percent = percent_of_ceiling(setting, row);
    if (percent <= 0) continue;
    least = count == 0 ? row.ceiling : std::min(least, row.ceiling);
    most = std::max(most, row.ceiling);
    sum += percent;
    best = std::max(best, percent);
    ++count;
    // Less than half a percent above is noise of the measurement, and is shown as 100.
    if (percent >= 100.5) ++above;
  }
  if (count == 0) return;
  print("# Ceiling              : {:.4f} to {:.4f} GB/s; %ceil on average {:.1f}, at most {:.1f}\n",
        least, most, sum / static_cast<double>(count), best);
  if (above > 0)
    print("# Above 100 %ceil      : {} of {}: {}\n", above, count, explain_excess(setting));
}

// Says what the columns of the table mean.
void explain_times(const Setting& setting) {
  if (setting.one_way())
    print(
        "# stream: rank 0 sends {} to rank 1 at once, which answers when it has all; times are "
        "those of one\n#   message: an iteration over {}\n# ping-pong: half of the round trip of "
        "one message from rank 0 to rank 1 and back; latency is its mean\n",
        setting.in_a_row == 1 ? "1 message" : fmt::format("{} messages", setting.in_a_row),
        setting.in_a_row);
  print("# time: mean of the iterations, each {}; algbw and busbw: from p50; 1 GB = 1e9 B\n",
        setting.one_way() ? "timed on rank 0" : "that of its slowest rank");
}

void explain_ceiling(const Setting& setting) {
  if (setting.ceiling_of == CeilingOf::cores)
    print(
        "# %ceil: busbw in percent of what an all-reduce reaches that does nothing but bring data "
        "from core to\n#   core and sum it; measured before and after each row, the better of "
        "both\n");
  else if (setting.ceiling_of == CeilingOf::memcpy)
    print(
        "# %ceil: what the operation must load and store (rondo bench --help) over p50, in percent "
        "of what all ranks\n#   reach when they memcpy as much at once; measured before and after "
        "each row, the better of both\n");
  else if (setting.ceiling_of == CeilingOf::gpu)
    print(
        "# %ceil: what the operation must load and store (rondo bench --help) over p50, in percent "
        "of what copies of\n#   {} within the GPUs reach; measured before and after each row, the "
        "better of both\n",
        base::describe_bytes(setting.gpu->copy_bytes()));
  else if (setting.ceiling_of == CeilingOf::sockets)
    print(
        "# %ceil: busbw in percent of what plain TCP sockets reach over the same links at once; "
        "measured\n#   before and after each row, the better of both\n");
  else if (setting.ceiling_of == CeilingOf::device)
    print(
        "# %ceil: busbw in percent of what the RDMA devices of these ranks write at once without "
        "Rondo; measured\n#   before and after each row, the better of both\n");
}

// The lines above one half of the table.
struct Titles {
  std::string half, names, units;
};

Titles titles_of_calls(const Setting& setting, std::string half) {
  constexpr auto columns = " {:>9} {:>9} {:>9} {:>7} {:>7} {:>7} {:>6}";
  return {
      std::move(half),
      fmt::format(columns, "time", "p50", "p99", "algbw", "busbw", "%ceil", "#wrong"),
      fmt::format(columns, "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)",
                  setting.ceiling_of == CeilingOf::none ? "" : name_of(setting.ceiling_of), "")};
}

Titles titles_of_latency() {
  constexpr auto columns = " {:>9} {:>9} {:>9}";
  return {fmt::format(columns, "", "ping-pong", ""), fmt::format(columns, "latency", "p50", "p99"),
          fmt::format(columns, "(us)", "(us)", "(us)")};
}

}  // namespace

void print_header(const Setting& setting) {
  const bool both = setting.operation.has_in_place();
  const Titles left = titles_of_calls(setting, setting.one_way() ? "stream" : "out-of-place");
  const Titles right = setting.one_way() ? titles_of_latency()
                       : both            ? titles_of_calls(setting, "in-place")
                                         : Titles{};
  explain_times(setting);
  explain_ceiling(setting);
  print("#\n#{:>53} {:^60} {:^60}\n", "", left.half, right.half);
  print("#{:>11} {:>13} {:>7} {:>8} {:>5}   {} {}\n", "size", "count", "type", "redop", "root",
        left.names, right.names);
  print("#{:>11} {:>13} {:>7} {:>8} {:>5}   {} {}\n", "(B)", "(elements)", "", "", "", left.units,
        right.units);
  flush_output();
}

void print_rows(const Setting& setting, const Row& out_of_place,
                const std::optional<Row>& in_place) {
  std::string right;
  if (in_place) right = half(setting, *in_place);
  if (out_of_place.latency) right = latency_half(*out_of_place.latency);
  print("{:>12} {:>13} {:>7} {:>8} {:>5}   {} {}\n", out_of_place.bytes, out_of_place.count,
        name_of(out_of_place.type), op_name(setting, out_of_place), out_of_place.root,
        half(setting, out_of_place), right);
  flush_output();
}

void print_summary(const Setting& setting, const std::vector<Row>& rows) {
  std::uint64_t wrong = 0;
  double sum = 0;
  for (const Row& row : rows) {
    wrong += row.wrong;
    sum += row.busbw;
  }
  if (setting.checked)
    print("# Wrong elements       : {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED");
  else
    print("# Wrong elements       : not checked\n");
  print("# Avg bus bandwidth    : {:.4f} GB/s\n",
        sum / static_cast<double>(std::max<std::size_t>(rows.size(), 1)));
  print_ceilings(setting, rows);
  flush_output();
}

std::string describe_calls(const Setting& setting) {
  if (setting.one_way()) return fmt::format(", window of {}", setting.in_a_row);
  return setting.in_a_row > 1 ? fmt::format(", {} calls in a row", setting.in_a_row) : "";
}

std::string describe_row(const Setting& setting, const Row& row) {
  return fmt::format("{} {} {}{}{}", name_of(setting.operation), base::describe_bytes(row.bytes),
                     name_of(row.type), setting.reduces ? fmt::format(" {}", name_of(row.op)) : "",
                     !setting.operation.has_in_place() ? ""
                     : row.in_place                    ? ", in place"
                                                       : ", out of place");
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
