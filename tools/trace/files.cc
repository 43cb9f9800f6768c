// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "tools/shared/text.h"
#include "tools/trace/findings.h"

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<std::string>;

constexpr std::size_t most_hosts_told = 8;

[[noreturn]] void refuse_dump(const std::string& path, const std::string& problem) {
  throw UsageError(base::printable(fmt::format("{}: {}", path, problem)));
}

Dump read_dump(const std::string& path) {
  // A pipe would block.
  const base::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) refuse_dump(path, "cannot be opened: " + base::describe_errno(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode))
    refuse_dump(path, "not a file");
  std::string text(
      std::min<std::size_t>(static_cast<std::size_t>(status.st_size), most_dump_bytes + 1), ' ');
  const ssize_t count = ::read(file.get(), text.data(), text.size());
  if (count < 0) refuse_dump(path, "cannot be read: " + base::describe_errno(errno));
  text.resize(static_cast<std::size_t>(count));
  return parse_dump(path, std::move(text));
}

// Where ranks write.
std::string default_folder() {
  const auto variable = [](const char* name, const char* otherwise) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr || *value == '\0' ? otherwise : value);
  };
  const std::string given = variable("RONDO_DUMP", "off");
  return given != "off" ? given
                        : fmt::format("{}/rondo-{}/dumps", variable("TMPDIR", "/tmp"), ::geteuid());
}

// The files NAME.dump, or the folders.
Paths list_folder(const std::string& folder, bool folders) {
  Paths paths;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error))
    if (folders ? entry->is_directory() : entry->path().extension() == ".dump")
      paths.push_back(entry->path().string());
  if (error) refuse_dump(folder, "cannot be read: " + base::describe_errno(error.value()));
  std::ranges::sort(paths);
  return paths;
}

// The dumps in the folder, or in the newest folder below it.
Paths find_dumps(const std::string& folder) {
  Paths paths = list_folder(folder, false);
  fs::file_time_type newest = fs::file_time_type::min();
  if (paths.empty())
    for (const std::string& job : list_folder(folder, true)) {
      std::error_code error;
      const auto time = fs::last_write_time(job, error);
      if (error || time < newest) continue;
      if (Paths found = list_folder(job, false); !found.empty())
        paths = std::move(found), newest = time;
    }
  if (paths.empty())
    refuse_dump(folder,
                "has no dumps; a rank writes one when its communicator fails, on the signal of "
                "RONDO_DUMP_SIGNAL, and in Communicator::dump()");
  return paths;
}

void check_job(const Dump& dump, const Dump& other) {
  for (const char* name : {"job", "size", "group"})
    if (dump.written.raw(name) != other.written.raw(name))
      throw UsageError(base::printable(fmt::format(
          "files of two jobs: {} has the {} {}, and {} has {}; name those of one job", dump.path,
          name, dump.written.text(name), other.path, other.written.text(name))));
}

bool is_better(const Dump& dump, const Dump& other) {
  const auto worth = [](const Dump& each) {
    return std::pair(each.written.raw("why") == "failure", each.time);
  };
  return worth(dump) > worth(other);
}

}  // namespace

Dumps read_dumps(Paths paths, TraceFindings& findings) {
  std::map<int, Dump> by_rank;
  const auto add = [&](const std::string& path) {
    Dump dump = read_dump(path);
    if (!by_rank.empty()) check_job(by_rank.begin()->second, dump);
    const auto [place, is_new] = by_rank.try_emplace(dump.rank);
    if (is_new || is_better(dump, place->second)) place->second = std::move(dump);
  };
  if (paths.empty()) paths.push_back(default_folder());
  for (const std::string& path : paths) {
    if (!fs::is_directory(path)) {
      add(path);
      continue;
    }
    for (const std::string& file : find_dumps(path)) {
      try {
        add(file);
      } catch (const UsageError& refused) {
        findings.push_back({"left_out", {}, fmt::format("left out: {}", refused.what())});
      }
    }
  }
  if (by_rank.empty()) throw UsageError(findings.front().text);
  Dumps dumps;
  for (auto& each : by_rank) dumps.push_back(std::move(each.second));
  return dumps;
}

void find_file_problems(const Dumps& dumps, TraceFindings& findings) {
  std::map<int, std::string> hosts;
  std::vector<int> missing, cut, wrong;
  std::size_t invalid = 0;
  for (const Dump& dump : dumps) {
    for (const DumpLine& line : dump.members) hosts.emplace(line.rank("rank"), line.text("host"));
    if (!dump.whole) cut.push_back(dump.rank);
    if (dump.invalid > 0) wrong.push_back(dump.rank);
    invalid += dump.invalid;
  }
  std::map<std::string, std::vector<int>> by_host;
  for (int rank = 0; rank < dumps.front().written.rank("size"); ++rank) {
    if (std::ranges::binary_search(dumps, rank, {}, &Dump::rank)) continue;
    missing.push_back(rank);
    if (hosts.contains(rank)) by_host[hosts[rank]].push_back(rank);
  }
  Paths places;
  for (const auto& [host, ranks] : by_host)
    if (places.size() < most_hosts_told)
      places.push_back(fmt::format("{} ({})", host, base::list_of_ranks(ranks)));
  if (by_host.size() > most_hosts_told)
    places.push_back(fmt::format("{} more hosts", by_host.size() - most_hosts_told));
  const auto tell = [&](const char* kind, const std::vector<int>& ranks, const std::string& before,
                        const std::string& after) {
    if (!ranks.empty())
      findings.push_back({kind, ranks, before + base::list_of_ranks(ranks) + after});
  };
  tell("missing", missing, "no file of ", places.empty() ? "" : "; look on " + join(places));
  tell("cut", cut, "the file of ", " is cut; the lines that are there are used");
  tell("invalid", wrong, fmt::format("{} lines of ", invalid), " are invalid and were left out");
}

}  // namespace rondo::tools
