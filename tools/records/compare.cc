// SPDX-License-Identifier: Apache-2.0
//
// Rows with equal keys become one value and an interval of noise on each side. Two sides differ
// only when no value of one lies in the interval of the other.
#include "tools/records/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/text.h"
#include "tools/shared/lists.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

// From so many rows of a key on, the outer tenths on both sides are left out of its interval: one
// slow interval in an hour of soak would make everything noise.
constexpr std::size_t many = 10;

struct Interval {
  double value = 0, low = 0, high = 0;
};

// The interval of a single row comes from its own iterations.
Interval interval_of(const ResultRow& row, Metric metric) {
  const Times& time = row.time;
  switch (metric) {
    case Metric::p99:
      return {time.p99_us, time.p90_us, time.max_us};
    case Metric::busbw:
      if (time.p90_us > 0 && time.min_us > 0)
        return {row.busbw, row.busbw * time.p50_us / time.p90_us,
                row.busbw * time.p50_us / time.min_us};
      return {row.busbw, row.busbw, row.busbw};
    case Metric::p50:
      break;
  }
  return {time.p50_us, time.min_us, time.p90_us};
}

// The middle, of an even number of values the mean of the two in the middle.
double middle_of(std::span<const double> sorted) {
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

using Rows = std::vector<const ResultRow*>;

SideOfRow side_of(const Rows& rows, Metric metric) {
  SideOfRow side;
  std::vector<double> values;
  for (const ResultRow* row : rows) {
    values.push_back(interval_of(*row, metric).value);
    side.wrong += row->wrong;
    side.errors += row->errors;
  }
  std::ranges::sort(values);
  side.rows = rows.size();
  side.value = middle_of(values);
  side.transport = rows.front()->transport;
  side.algorithm = rows.front()->algorithm;
  side.calls = rows.front()->calls;
  if (rows.size() == 1) {
    const Interval interval = interval_of(*rows.front(), metric);
    side.low = interval.low;
    side.high = interval.high;
    side.tried = {interval.value};
    return side;
  }
  const auto left_out = static_cast<std::ptrdiff_t>(values.size() >= many ? values.size() / 10 : 0);
  side.tried.assign(values.begin() + left_out, values.end() - left_out);
  side.low = side.tried.front();
  side.high = side.tried.back();
  return side;
}

bool has_one_in(const SideOfRow& side, const SideOfRow& interval) {
  return std::ranges::any_of(
      side.tried, [&](double value) { return value >= interval.low && value <= interval.high; });
}

Verdict judge(const SideOfRow& first, const SideOfRow& second, Metric metric,
              std::optional<double> worse) {
  if (second.wrong > 0 || second.errors > 0) return Verdict::wrong;
  if (first.value <= 0 || second.value <= 0) return Verdict::unknown;
  if (first.value == second.value || has_one_in(first, second) || has_one_in(second, first))
    return Verdict::same;
  const bool more_is_worse = metric != Metric::busbw;
  if ((second.value > first.value) != more_is_worse) return Verdict::better;
  if (!worse) return Verdict::worse;
  const double allowed = first.value * (1 + (more_is_worse ? *worse : -*worse) / 100);
  const bool beyond = more_is_worse ? second.value > allowed : second.value < allowed;
  return beyond ? Verdict::failed : Verdict::worse;
}

RowKey key_of(const ResultRow& row) {
  return {row.operation, row.type, row.op, row.root, row.in_place, row.ranks, row.bytes};
}

// The rows of each key, and the keys in the order of the records.
struct Side {
  std::map<RowKey, Rows> rows;
  std::vector<RowKey> order;

  explicit Side(std::span<const Record> records) {
    for (const Record& record : records) {
      if (record.kind == "pairs")
        throw UsageError(base::printable(fmt::format(
            "{}: a record of pairs of hosts, which has no rows to compare; rondo report shows it",
            record.path)));
      for (const ResultRow& row : record.rows) {
        const auto [place, is_new] = rows.try_emplace(key_of(row));
        if (is_new) order.push_back(place->first);
        place->second.push_back(&row);
      }
    }
  }
};

std::string paths_of(std::span<const Record> records) {
  std::vector<std::string> paths;
  for (const Record& record : records) paths.push_back(record.path);
  return join(paths, ",");
}

using Describe = std::vector<std::string> (*)(const Record&);

// Lists what the records of a side have of something, each once: "core", "core and none".
std::string all_of(std::span<const Record> records, Describe describe) {
  std::set<std::string> texts;
  for (const Record& record : records)
    for (std::string& text : describe(record)) texts.insert(std::move(text));
  const std::string all = join({texts.begin(), texts.end()}, ", ");
  return all.empty() ? "none" : all;
}

template <class Member>
std::vector<std::string> of_hosts(const Record& record, Member member) {
  std::vector<std::string> texts;
  for (const HostRecord& host : record.hosts) texts.push_back(fmt::format("{}", member(host)));
  return texts;
}

std::string yes(bool value) {
  return value ? "yes" : "no";
}

std::map<std::string, std::string> variables_of(std::span<const Record> records) {
  std::map<std::string, std::string> variables;
  for (const Record& record : records)
    variables.insert(record.environment.begin(), record.environment.end());
  return variables;
}

// Launchers give each run and rank its own values of these.
bool says_how(const std::string& name) {
  static constexpr std::string_view of_one_run[] = {"RONDO_RENDEZVOUS",  "RONDO_SECRET",
                                                    "RONDO_SECRET_FILE", "RONDO_RANK",
                                                    "RONDO_LOCAL_RANK",  "RONDO_HOST"};
  return name.starts_with("RONDO_") && !contains(of_one_run, name);
}

}  // namespace

std::string_view name_of(Metric metric) noexcept {
  return metric == Metric::p50 ? "p50" : metric == Metric::p99 ? "p99" : "busbw";
}

double parse_worse(std::string_view text, Metric metric) {
  const auto fail = [&](std::string_view why) {
    throw UsageError(fmt::format("--worse {}: {}", text, why));
  };
  if (!text.ends_with('%')) fail("give a percentage, as in --worse 10%");
  const auto percent = base::parse_whole<double>(text.substr(0, text.size() - 1));
  if (!percent || !(*percent >= 0 && *percent <= 100'000))
    fail("not a percentage from 0% on, as in --worse 10%");
  if (metric == Metric::busbw && *percent >= 100)
    fail("no bandwidth falls by 100 % or more; give less than 100%");
  return *percent;
}

std::string describe(const RowKey& key) {
  std::string text =
      fmt::format("{} {} {}", key.operation, base::describe_bytes(key.bytes), key.type);
  if (key.op != "none") text += " " + key.op;
  if (key.root > 0) text += fmt::format(", root {}", key.root);
  if (key.in_place) text += ", in place";
  return text + fmt::format(", {} {}", key.ranks, key.ranks == 1 ? "rank" : "ranks");
}

std::uint64_t Comparison::count(Verdict verdict) const {
  return static_cast<std::uint64_t>(std::ranges::count(rows, verdict, &ComparedRow::verdict));
}

Comparison compare(std::span<const Record> first, std::span<const Record> second, Metric metric,
                   std::optional<double> worse) {
  const Side a(first), b(second);
  Comparison comparison;
  comparison.metric = metric;
  for (const RowKey& key : a.order) {
    const auto other = b.rows.find(key);
    if (other == b.rows.end()) {
      comparison.only_first.push_back(key);
      continue;
    }
    ComparedRow row;
    row.key = key;
    row.first = side_of(a.rows.at(key), metric);
    row.second = side_of(other->second, metric);
    row.ratio = row.first.value > 0 ? row.second.value / row.first.value : 0;
    row.verdict = judge(row.first, row.second, metric, worse);
    comparison.rows.push_back(std::move(row));
  }
  for (const RowKey& key : b.order)
    if (!a.rows.contains(key)) comparison.only_second.push_back(key);
  if (comparison.rows.empty())
    throw UsageError(base::printable(fmt::format(
        "{} and {} have no row in common, so nothing can be compared; measure the same operations, "
        "sizes, types and number of ranks",
        paths_of(first), paths_of(second))));
  return comparison;
}

std::vector<std::string> differences(std::span<const Record> first,
                                     std::span<const Record> second) {
  static constexpr std::pair<const char*, Describe> compared[] = {
      {"rondo", [](const Record& r) { return std::vector{r.rondo}; }},
      {"kind", [](const Record& r) { return std::vector{r.kind}; }},
      {"transport", [](const Record& r) { return std::vector{r.transport}; }},
      {"ranks", [](const Record& r) { return std::vector{std::to_string(r.ranks)}; }},
      {"binding", [](const Record& r) { return std::vector{r.binding}; }},
      {"processors of rank 0", [](const Record& r) { return std::vector{r.processors}; }},
      {"results checked", [](const Record& r) { return std::vector{yes(r.checked)}; }},
      {"inputs written anew", [](const Record& r) { return std::vector{yes(r.fresh)}; }},
      {"buffers from allocate()", [](const Record& r) { return std::vector{yes(r.allocated)}; }},
      {"GPU", [](const Record& r) { return std::vector{r.device_name}; }},
      {"staging", [](const Record& r) { return std::vector{r.staging}; }},
      {"hosts", [](const Record& r) { return of_hosts(r, [](auto& h) { return h.name; }); }},
      {"processor",
       [](const Record& r) { return of_hosts(r, [](auto& h) { return h.processor; }); }},
      {"cores", [](const Record& r) { return of_hosts(r, [](auto& h) { return h.cores; }); }},
      {"kernel", [](const Record& r) { return of_hosts(r, [](auto& h) { return h.kernel; }); }}};
  std::vector<std::string> lines;
  for (const auto& [name, describe] : compared) {
    const std::string a = all_of(first, describe), b = all_of(second, describe);
    if (a != b) lines.push_back(fmt::format("{}: {} | {}", name, a, b));
  }
  const auto a = variables_of(first), b = variables_of(second);
  std::set<std::string> names;
  for (const auto* variables : {&a, &b})
    for (const auto& [name, value] : *variables)
      if (says_how(name)) names.insert(name);
  const auto value_of = [](const auto& variables, const std::string& name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string("not set") : found->second;
  };
  for (const std::string& name : names)
    if (value_of(a, name) != value_of(b, name))
      lines.push_back(fmt::format("{}: {} | {}", name, value_of(a, name), value_of(b, name)));
  return lines;
}

}  // namespace rondo::tools
