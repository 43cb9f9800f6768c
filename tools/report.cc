// SPDX-License-Identifier: Apache-2.0
#include "tools/report.h"

#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "tools/output.h"
#include "tools/text.h"

namespace rondo::tools {
namespace {

// Six significant places at most, so that small and large values keep the columns.
std::string short_number(double value) {
  if (value >= 100'000) return fmt::format("{:.0f}", value);
  if (value >= 1'000) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

// What is held against the ceiling.
double rate(const Setting& setting, const Row& row) {
  return setting.shared_memory ? row.traffic : row.busbw;
}

std::string half(const Setting& setting, const Row& row) {
  const double reached = rate(setting, row);
  const std::string percent = setting.ceiling > 0 && row.bytes > 0 && reached > 0
                                  ? fmt::format("{:.0f}", 100 * reached / setting.ceiling)
                                  : "-";
  return fmt::format(" {:>9} {:>9} {:>9} {:>7.3f} {:>7.3f} {:>5} {:>6}", short_number(row.mean_us),
                     short_number(row.p50_us), short_number(row.p99_us), row.algbw, row.busbw, percent,
                     setting.checked ? std::to_string(row.wrong) : "N/A");
}

}  // namespace

std::string op_name(const Setting& setting, const Row& row) {
  return setting.reduces ? std::string(name_of(row.op)) : "none";
}

void print_header(const Setting& setting) {
  constexpr auto names = " {:>9} {:>9} {:>9} {:>7} {:>7} {:>5} {:>6}";
  const std::string titles =
      fmt::format(fmt::runtime(names), "time", "p50", "p99", "algbw", "busbw", "%ceil", "#wrong");
  const std::string units =
      fmt::format(fmt::runtime(names), "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "", "");
  const bool both = setting.operation != Collective::barrier;
  print(
      "# time: mean of the iterations, each that of its slowest rank; algbw and busbw: from p50; 1 GB = 1e9 "
      "B\n");
  if (setting.ceiling > 0 && setting.shared_memory)
    print(
        "# ceiling: {:.3f} GB/s loaded and stored by all ranks together, measured with memcpy from memory to "
        "memory\n# %ceil: what the operation loads and stores over p50, by the formulas of rondo bench "
        "--help\n",
        setting.ceiling);
  else if (setting.ceiling > 0)
    print("# ceiling: {:.3f} GB/s each way at every rank at once, measured with plain TCP sockets\n",
          setting.ceiling);
  print("#\n#{:>53} {:^58} {:^58}\n", "", "out-of-place", both ? "in-place" : "");
  print("#{:>11} {:>13} {:>7} {:>8} {:>5}   {} {}\n", "size", "count", "type", "redop", "root", titles,
        both ? titles : "");
  print("#{:>11} {:>13} {:>7} {:>8} {:>5}   {} {}\n", "(B)", "(elements)", "", "", "", units,
        both ? units : "");
  flush_output();
}

void print_rows(const Setting& setting, const Row& out_of_place, const std::optional<Row>& in_place) {
  print("{:>12} {:>13} {:>7} {:>8} {:>5}   {} {}\n", out_of_place.bytes, out_of_place.count,
        name_of(out_of_place.type), op_name(setting, out_of_place), out_of_place.root,
        half(setting, out_of_place), in_place ? half(setting, *in_place) : "");
  flush_output();
}

void print_summary(const Setting& setting, const std::vector<Row>& rows, double ceiling_after) {
  std::uint64_t wrong = 0;
  double sum = 0, reached = 0, best = 0;
  for (const Row& row : rows) {
    wrong += row.wrong;
    sum += row.busbw;
    reached += rate(setting, row);
    best = std::max(best, rate(setting, row));
  }
  const double count = static_cast<double>(std::max<std::size_t>(rows.size(), 1));
  const double average = sum / count;
  if (setting.checked)
    print("# Wrong elements       : {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED");
  else
    print("# Wrong elements       : not checked\n");
  print("# Avg bus bandwidth    : {:.4f} GB/s\n", average);
  const double ceiling = std::max(setting.ceiling, ceiling_after);
  if (ceiling > 0)
    print(
        "# Ceiling              : {:.4f} GB/s ({:.4f} before, {:.4f} after); average {:.1f} %, best row "
        "{:.1f} % of it\n",
        ceiling, setting.ceiling, ceiling_after, 100 * reached / count / ceiling, 100 * best / ceiling);
  flush_output();
}

std::string describe_row(const Setting& setting, const Row& row) {
  return fmt::format("{} {} {}{}, {}", name_of(setting.operation), format_bytes(row.bytes), name_of(row.type),
                     setting.reduces ? fmt::format(" {}", name_of(row.op)) : "",
                     row.in_place ? "in place" : "out of place");
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
