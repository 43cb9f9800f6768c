// SPDX-License-Identifier: Apache-2.0
//
// Reads JSON of any origin. Members checks each member as it is taken, and its messages name what
// is wrong. So the rest of the tools works on structs alone.
#include "tools/records/read.h"

#include <rondo/version.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cmath>
#include <limits>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "tools/records/write.h"
#include "tools/shared/output.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

// Finds members in logarithmic time, however many there are. That of tools/records/record_file.h
// does not.
using Tree = nlohmann::json;

// Records are less deep. A record of a hundred thousand rows has fewer values.
constexpr int most_depth = 16;
constexpr std::size_t most_values = 8'000'000;
constexpr double most_number = 1e18;
constexpr std::size_t most_hosts_named = 4;

[[noreturn]] void refuse(const std::string& path, const std::string& problem) {
  throw UsageError(base::printable(fmt::format("{}: {}", path, problem)));
}

// The members of an object of a record. Messages call it `what`.
class Members {
 public:
  Members(const std::string& path, std::string what, const Tree& tree)
      : path_(path), what_(std::move(what)), tree_(tree) {
    if (!tree.is_object()) refuse(path_, fmt::format("{} is not an object; {}", what_, remedy));
  }

  bool has(const char* name) const { return find(name) != nullptr; }

  std::string text(const char* name) const {
    const Tree& value = need(name);
    if (!value.is_string()) wrong(name, "a text");
    return value.get<std::string>();
  }
  std::string text_or(const char* name) const { return has(name) ? text(name) : std::string(); }

  bool flag(const char* name) const {
    const Tree& value = need(name);
    if (!value.is_boolean()) wrong(name, "true or false");
    return value.get<bool>();
  }
  double number(const char* name) const {
    const Tree& value = need(name);
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!(number >= 0 && number <= most_number)) wrong(name, "a number of at least 0");
    return number;
  }
  std::uint64_t count(const char* name,
                      std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) const {
    const Tree& value = need(name);
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > most)
      wrong(name, most == std::numeric_limits<std::uint64_t>::max()
                      ? "a whole number"
                      : fmt::format("a whole number up to {}", most));
    return value.get<std::uint64_t>();
  }
  std::uint64_t count_or_zero(const char* name) const { return has(name) ? count(name) : 0; }
  std::optional<double> signed_number(const char* name) const {
    const Tree* value = find(name);
    if (value == nullptr) return {};
    if (!value->is_number() || !(std::abs(value->get<double>()) <= most_number))
      wrong(name, "a number");
    return value->get<double>();
  }
  std::optional<double> number_if(const char* name) const {
    if (!has(name)) return {};
    return number(name);
  }
  // A rank, or -1 for none.
  int rank(const char* name) const {
    const Tree& value = need(name);
    const auto number = value.is_number_integer() ? value.get<std::int64_t>() : -2;
    if (number < -1 || number > std::numeric_limits<int>::max()) wrong(name, "a rank or -1");
    return static_cast<int>(number);
  }
  const Tree& list(const char* name) const {
    const Tree& value = need(name);
    if (!value.is_array()) wrong(name, "a list");
    return value;
  }
  const Tree& need(const char* name) const {
    const Tree* value = find(name);
    if (value == nullptr) refuse(path_, fmt::format("{} has no {}; {}", what_, name, remedy));
    return *value;
  }
  // null counts as absent.
  const Tree* find(const char* name) const {
    const auto found = tree_.find(name);
    return found == tree_.end() || found->is_null() ? nullptr : &*found;
  }
  Members inside(const char* name, const Tree& tree, std::size_t place) const {
    return {path_, fmt::format("number {} of {}", place + 1, name), tree};
  }
  [[noreturn]] void wrong(const char* name, const std::string& wanted) const {
    refuse(path_, fmt::format("{} has a {} that is not {}; {}", what_, name, wanted, remedy));
  }

 private:
  static constexpr std::string_view remedy =
      "the file was changed, or another program wrote it; measure again with rondo bench --json";

  const std::string& path_;
  std::string what_;
  const Tree& tree_;
};

template <class Function>
void for_each(const Members& members, const char* name, Function function) {
  std::size_t place = 0;
  for (const Tree& element : members.list(name)) function(members.inside(name, element, place++));
}

std::vector<std::string> texts_of(const Members& members, const char* name) {
  std::vector<std::string> texts;
  for (const Tree& element : members.list(name)) {
    if (!element.is_string()) members.wrong(name, "a list of texts");
    texts.push_back(element.get<std::string>());
  }
  return texts;
}

Times times_of(const Members& row, const std::string& prefix) {
  const auto time = [&](const char* name) { return row.number((prefix + name).c_str()); };
  return {time("mean_us"), time("min_us"), time("p50_us"),
          time("p90_us"),  time("p99_us"), time("max_us")};
}

ResultRow row_of(const Members& members) {
  ResultRow row;
  row.operation = members.text("operation");
  row.transport = members.text("transport");
  row.type = members.text("type");
  row.op = members.text("op");
  row.algorithm = members.text("algorithm");
  row.bytes = members.count("bytes");
  row.calls = members.count(members.has("window") ? "window" : "agg_iters");
  row.iterations = members.count("iterations");
  row.ranks = members.rank("ranks");
  row.root = members.rank("root");
  row.in_place = members.flag("in_place");
  row.time = times_of(members, "");
  if (members.has("latency_p50_us")) row.latency = times_of(members, "latency_");
  row.algbw = members.number("algbw");
  row.busbw = members.number("busbw");
  row.ceiling_percent = members.number_if("ceiling_percent").value_or(0);
  row.wrong = members.count("wrong");
  row.errors = members.count_or_zero("errors");
  row.second = members.number_if("second");
  row.late_us = members.signed_number("late_us");
  if (members.has("late_rank")) row.late_rank = members.rank("late_rank");
  return row;
}

PairResult pair_of(const Members& members) {
  PairResult pair;
  pair.from_rank = members.rank("from_rank");
  pair.to_rank = members.rank("to_rank");
  pair.from_host = members.text("from_host");
  pair.to_host = members.text("to_host");
  pair.bandwidth = members.number_if("bandwidth");
  pair.latency_us = members.number_if("latency_us");
  pair.outlier = members.text_or("outlier");
  return pair;
}

SoakSummary summary_of(const Members& members) {
  SoakSummary summary;
  summary.operation = members.text("operation");
  summary.type = members.text("type");
  summary.op = members.text("op");
  summary.in_place = members.flag("in_place");
  summary.bytes = members.count("bytes");
  summary.intervals = members.count("intervals");
  summary.iterations = members.count("iterations");
  summary.time.min_us = members.number("min_us");
  summary.time.p50_us = members.number("p50_us");
  summary.time.p99_us = members.number("p99_us");
  summary.time.max_us = members.number("max_us");
  summary.drift_percent_per_hour = members.signed_number("drift_percent_per_hour");
  summary.wrong = members.count("wrong");
  summary.errors = members.count("errors");
  return summary;
}

HostRecord host_of(const Members& members) {
  HostRecord host;
  host.name = members.text("name");
  host.kernel = members.text("kernel");
  host.processor = members.text("processor");
  host.cores = static_cast<unsigned>(members.count("cores", 1'000'000));
  host.memory_bytes = members.count("memory_bytes");
  for_each(members, "interfaces", [&](const Members& interface) {
    host.interfaces.push_back(
        {interface.text("name"), interface.text("address"),
         interface.has("mbit") ? static_cast<int>(interface.count("mbit", 1'000'000'000)) : 0});
  });
  for (const Tree& rank : members.list("ranks")) {
    if (!rank.is_number_unsigned() ||
        rank.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<int>::max()})
      members.wrong("ranks", "a list of ranks");
    host.ranks.push_back(rank.get<int>());
  }
  return host;
}

void read_head(const Members& members, Record& record) {
  record.kind = members.text("kind");
  if (record.kind != "bench" && record.kind != "pairs" && record.kind != "soak")
    refuse(record.path, fmt::format("a record of the unknown kind {}; rondo {} reads bench, pairs "
                                    "and soak; use the rondo that wrote it, or a newer one",
                                    record.kind, version()));
  record.rondo = members.text("rondo");
  record.time = members.text("time");
  record.command = texts_of(members, "command");
  record.transport = members.text("transport");
  record.ranks = members.rank("ranks");
  record.binding = members.text("binding");
  record.processors = members.text("processors");
  record.checked = members.flag("checked");
  record.fresh = members.flag("fresh");
  record.allocated = members.flag("allocated");
  record.device_name = members.text_or("device_name");
  record.staging = members.text_or("staging");
  for_each(members, "hosts", [&](const Members& host) { record.hosts.push_back(host_of(host)); });
  const Tree& environment = members.need("environment");
  if (!environment.is_object()) members.wrong("environment", "an object");
  for (const auto& [name, value] : environment.items()) {
    if (!value.is_string()) members.wrong("environment", "an object of texts");
    record.environment.emplace_back(name, value.get<std::string>());
  }
}

void read_results(const Members& members, Record& record) {
  for_each(members, "results", [&](const Members& row) {
    if (record.kind == "pairs")
      record.pairs.push_back(pair_of(row));
    else
      record.rows.push_back(row_of(row));
    if (record.kind == "soak" && !record.rows.back().second)
      row.wrong("second", "a number of at least 0");
  });
  if (record.kind == "pairs" && members.has("findings"))
    for_each(members, "findings",
             [&](const Members& finding) { record.findings.push_back(finding.text("text")); });
  if (record.kind == "soak" && members.has("summary"))
    for_each(members, "summary",
             [&](const Members& summary) { record.summary.push_back(summary_of(summary)); });
  record.complete = members.flag("complete");
  record.error = members.text_or("error");
}

void check_version(const std::string& path, const Tree& tree) {
  if (!tree.is_object() || (!tree.contains("version") && !tree.contains("results")))
    refuse(path, "JSON, but not a record; records are what rondo bench --json writes");
  if (!tree.contains("version"))
    refuse(path,
           "results of an early rondo 0.1, from before records had a version; measure again with "
           "this rondo");
  const Tree& version = tree["version"];
  if (!version.is_number_unsigned() || version.get<std::uint64_t>() == 0)
    refuse(path, "its version is not a whole number from 1 on, so it is not a record");
  if (version.get<std::uint64_t>() > record_version)
    refuse(path, fmt::format("a record of version {}; rondo {} reads version {}; use the rondo "
                             "that wrote it, or a newer one",
                             version.get<std::uint64_t>(), rondo::version(), record_version));
}

Tree parse(const std::string& path, const std::string& text) {
  const std::string_view used = base::trim(text);
  if (used.empty())
    refuse(path, "empty; rondo bench --json has not written it, or its copy failed");
  std::size_t values = 0;
  const auto bound = [&](int depth, Tree::parse_event_t, Tree&) {
    if (depth > most_depth || ++values > most_values)
      refuse(path, fmt::format("more than {} values, or more than {} levels: too large for a "
                               "record of rondo bench",
                               most_values, most_depth));
    return true;
  };
  try {
    return Tree::parse(used, bound);
  } catch (const Tree::parse_error& error) {
    if (used.front() == '{' && error.byte >= used.size())
      refuse(path, fmt::format("ends in the middle, after {} bytes; copy it again: rondo writes "
                               "whole files, so the copy is not whole, or the disk was full",
                               text.size()));
    refuse(path,
           fmt::format("not JSON (at byte {}), so not a record; rondo bench --json writes records",
                       error.byte));
  } catch (const Tree::out_of_range&) {
    refuse(path, "has a number that is too large, so it is not a record of rondo bench");
  }
}

std::string read_file(const std::string& path) {
  const base::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) refuse(path, "cannot be opened: " + base::describe_errno(errno));
  std::string text;
  constexpr std::size_t step = 65536;
  for (;;) {
    const std::size_t before = text.size();
    text.resize(before + step);
    const ssize_t count = ::read(file.get(), text.data() + before, step);
    text.resize(before + static_cast<std::size_t>(count > 0 ? count : 0));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(path, "cannot be read: " + base::describe_errno(errno));
    if (count == 0) return text;
    if (text.size() > most_record_bytes)
      refuse(path, fmt::format("larger than {}, so not a record of rondo bench",
                               base::describe_bytes(most_record_bytes)));
  }
}

}  // namespace

HostRecord parse_host(const std::string& text) {
  const std::string path = "the description of a host";
  const Tree tree = parse(path, text);
  return host_of(Members(path, "it", tree));
}

Record parse_record(const std::string& path, std::string text) {
  Record record;
  record.path = path;
  {
    const Tree tree = parse(path, text);
    check_version(path, tree);
    const Members members(record.path, "the record", tree);
    read_head(members, record);
    read_results(members, record);
  }
  record.text = std::move(text);
  return record;
}

std::string describe(const Record& record) {
  std::vector<std::string> hosts;
  for (const HostRecord& host : record.hosts) {
    if (hosts.size() == most_hosts_named) {
      hosts.push_back(fmt::format("{} more hosts", record.hosts.size() - most_hosts_named));
      break;
    }
    hosts.push_back(host.name);
  }
  return fmt::format("{}, rondo {}, {} {} over {} on {}{}", record.time, record.rondo, record.ranks,
                     record.ranks == 1 ? "rank" : "ranks", record.transport, join(hosts),
                     record.complete ? "" : "; not complete: " + record.error);
}

Record read_record(const std::string& path) {
  return parse_record(path, read_file(path));
}

std::vector<Record> read_records(std::string_view command, const std::vector<std::string>& paths) {
  std::vector<Record> records;
  for (const std::string& path : paths) {
    records.push_back(read_record(path));
    const Record& record = records.back();
    if (record.complete) continue;
    const std::size_t results = record.rows.size() + record.pairs.size();
    say_text(base::printable(fmt::format("{}: {}: not complete ({}); its {} {} used", command, path,
                                         record.error.empty() ? "no reason is given" : record.error,
                                         results, results == 1 ? "result is" : "results are")) +
             "\n");
  }
  return records;
}

}  // namespace rondo::tools
