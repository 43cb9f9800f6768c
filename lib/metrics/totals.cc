// SPDX-License-Identifier: Apache-2.0
//
// The text format of Prometheus, version 0.0.4:
//   file   := family*
//   family := "# HELP " name " " words "\n" "# TYPE " name " " ("counter" | "gauge") "\n" sample+
//   sample := name "{" label ("," label)* "}" " " value "\n"
//   label  := word "=\"" text "\""        ; \, " and line feeds in text are \\, \" and \n
//   value  := digits ["." 9 digits]       ; seconds have decimals, all others are whole
// All samples of a name stand together, and no two have the same labels. Names that have counted
// nothing yet are left out. Tags are valid UTF-8 without control characters.
#include "lib/metrics/totals.h"

#include <fmt/format.h>

#include "base/text.h"

namespace rondo::metrics {
namespace {

struct Row {
  std::string_view name, type, help;
  bool seconds = false;
};
constexpr std::array<Row, series_count> rows{{
    {"rondo_operations_total", "counter", "Operations that this rank has started."},
    {"rondo_waited_seconds_total", "counter",
     "Time in which the oldest operation was under way, by what it waited for.", true},
    {"rondo_sent_bytes_total", "counter",
     "Payload bytes that this rank has sent over links. Direct algorithms send none."},
    {"rondo_received_bytes_total", "counter",
     "Payload bytes that this rank has received or has loaded from shared memory."},
    {"rondo_failures_total", "counter", "Operations of this rank that ended with an error."},
    {"rondo_late_calls_total", "counter",
     "Collectives in which this rank waited for late_rank alone."},
    {"rondo_late_seconds_total", "counter",
     "Time in which this rank waited for late_rank alone to call a collective.", true},
    {"rondo_communicators", "gauge", "Communicators of this rank that are open."},
}};

std::string number(std::uint64_t value, bool seconds) {
  constexpr std::uint64_t second = 1'000'000'000;
  return seconds ? fmt::format("{}.{:09}", value / second, value % second) : std::to_string(value);
}

std::uint64_t count_of(nanoseconds time) noexcept {
  return time.count() > 0 ? static_cast<std::uint64_t>(time.count()) : 0;
}

std::string_view name_of_kind(std::size_t kind) noexcept {
  return kind < collective_count ? name_of(static_cast<Collective>(kind)) : "messages";
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\' || c == '"') result += '\\';
    if (c == '\n')
      result += "\\n";
    else
      result += c;
  }
  return result;
}

std::string_view Names::of(const std::string& name) {
  if (const auto found = named_.find(name); found != named_.end()) return *found;
  if (named_.size() == most_) return "other";
  return *named_.insert(name).first;
}

void Totals::add(const Sample& sample, Labels& labels, bool is_open) {
  const std::string rank = fmt::format("rank=\"{}\"", sample.rank);
  const Statistics& s = sample.statistics;
  const auto add_tag = [&](const operation::TagCounts::Entry& entry, std::string_view tag) {
    const std::string tail = fmt::format(",tag=\"{}\"", escaped(tag));
    for (std::size_t kind = 0; kind < entry.operations.size(); ++kind)
      if (entry.operations[kind] != 0)
        value(Series::operations, fmt::format("{},operation=\"{}\"{}", rank, name_of_kind(kind),
                                              tail)) += entry.operations[kind];
    for (std::size_t cause = 0; cause < entry.waited.size(); ++cause)
      if (entry.waited[cause].count() != 0)
        value(Series::waited, fmt::format("{},cause=\"{}\"{}", rank,
                                          name_of(static_cast<WaitCause>(cause)), tail)) +=
            count_of(entry.waited[cause]);
  };
  if (sample.tags) {
    for (const operation::TagCounts::Entry& entry : sample.tags->named()) {
      const std::string tag = base::printable(entry.tag);
      add_tag(entry, tag.empty() ? std::string_view() : labels.tags.of(tag));
    }
    add_tag(sample.tags->other(), "other");
  }
  const std::string transport = fmt::format("{},transport=\"{}\"", rank, escaped(sample.transport));
  value(Series::sent, transport) += s.bytes_sent;
  value(Series::received, transport) += s.bytes_received;
  value(Series::failures, rank) += s.failures;
  value(Series::communicators, rank) += is_open ? 1 : 0;
  for (std::size_t late = 0; late < s.late_ranks.size(); ++late) {
    if (s.late_ranks[late].calls == 0) continue;
    const int of_world = late < sample.ranks.size() ? sample.ranks[late] : static_cast<int>(late);
    const std::string who =
        fmt::format("{},late_rank=\"{}\"", rank, labels.late_ranks.of(std::to_string(of_world)));
    value(Series::late_calls, who) += s.late_ranks[late].calls;
    value(Series::late_time, who) += count_of(s.late_ranks[late].waited);
  }
}

std::string Totals::text(std::string_view labels) const {
  std::string text;
  for (std::size_t series = 0; series < series_count; ++series) {
    const Row& row = rows[series];
    if (values_[series].empty()) continue;
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", row.name, row.help, row.type);
    for (const auto& [own, value] : values_[series])
      text += fmt::format("{}{{{}{}{}}} {}\n", row.name, labels, labels.empty() ? "" : ",", own,
                          number(value, row.seconds));
  }
  return text;
}

}  // namespace rondo::metrics
