// SPDX-License-Identifier: Apache-2.0
#include "tools/trace/dumps.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/file_descriptor.h"
#include "base/text.h"
#include "tools/shared/lists.h"
#include "tools/shared/text.h"

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_hosts_told = 8;

[[noreturn]] void refuse_dump(const std::string& path, const std::string& problem) {
  throw UsageError(base::printable(fmt::format("{}: {}", path, problem)));
}

// Of a named pipe or a device this program reads nothing.
std::string read_regular_file(const std::string& path) {
  const base::FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) refuse_dump(path, "cannot be opened: " + base::describe_errno(errno));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) refuse_dump(path, "is not a file");
  std::string text(
      std::min<std::size_t>(static_cast<std::size_t>(std::max<off_t>(0, status.st_size)),
                            most_dump_bytes + 1),
      '\0');
  std::size_t used = 0;
  while (used < text.size()) {
    const ssize_t count = ::read(file.get(), text.data() + used, text.size() - used);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse_dump(path, "cannot be read: " + base::describe_errno(errno));
    if (count == 0) break;
    used += static_cast<std::size_t>(count);
  }
  text.resize(used);
  return text;
}

std::string default_folder() {
  if (const char* given = std::getenv("RONDO_DUMP"); given != nullptr && *given != '\0') {
    if (std::string_view(given) == "off")
      throw UsageError("RONDO_DUMP is off, so no folder is known; name one, or files");
    return given;
  }
  const char* given = std::getenv("TMPDIR");
  return fmt::format("{}/rondo-{}/dumps", given != nullptr && *given == '/' ? given : "/tmp",
                     ::geteuid());
}

std::vector<std::string> dumps_in(const fs::path& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().extension() == ".dump") paths.push_back(entry->path().string());
  if (error) refuse_dump(folder.string(), "cannot be read: " + base::describe_errno(error.value()));
  std::ranges::sort(paths);
  return paths;
}

// The dumps in the folder, or in the folder of the newest job below it.
std::vector<std::string> find_dumps(const std::string& folder) {
  std::vector<std::string> paths = dumps_in(folder);
  if (!paths.empty()) return paths;
  std::optional<fs::file_time_type> newest;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (!entry.is_directory(error)) continue;
    const auto time = entry.last_write_time(error);
    if (error || (newest && time <= *newest)) continue;
    std::vector<std::string> below = dumps_in(entry.path());
    if (!below.empty()) paths = std::move(below), newest = time;
  }
  if (paths.empty())
    refuse_dump(folder,
           "has no dumps; a rank writes one when its communicator fails, on the signal "
           "RONDO_DUMP_SIGNAL, and by Communicator::dump()");
  return paths;
}

void check_job(const Dump& first, const Dump& other) {
  if (first.job == other.job && first.size == other.size && first.group == other.group) return;
  const auto what = [](const Dump& dump) {
    return fmt::format("{} is of job {}, {} ranks{}", dump.path, dump.job, dump.size,
                       dump.group.empty() ? "" : ", group " + dump.group);
  };
  throw UsageError(base::printable(
      fmt::format("{}, but {}; name the files of one job", what(first), what(other))));
}

bool is_better(const Dump& dump, const Dump& other) {
  const bool failure = dump.why == "failure", failed = other.why == "failure";
  return failure != failed ? failure : dump.time > other.time;
}

void find_missing(const std::vector<Dump>& dumps, TraceFindings& findings) {
  std::map<int, std::string> hosts;
  std::vector<int> there, missing;
  for (const Dump& dump : dumps) {
    there.push_back(dump.rank);
    for (const auto& [rank, host] : dump.members) hosts.emplace(rank, host);
  }
  std::map<std::string, std::vector<int>> by_host;
  for (int rank = 0; rank < dumps.front().size; ++rank) {
    if (std::ranges::binary_search(there, rank)) continue;
    missing.push_back(rank);
    by_host[hosts[rank]].push_back(rank);
  }
  if (missing.empty()) return;
  std::vector<std::string> places;
  for (const auto& [host, ranks] : by_host) {
    if (host.empty()) continue;
    if (places.size() == most_hosts_told) {
      places.push_back(fmt::format("{} more hosts", by_host.size() - places.size()));
      break;
    }
    places.push_back(fmt::format("{} ({})", host, base::list_of_ranks(ranks)));
  }
  findings.push_back({"missing",
                      missing,
                      fmt::format("no file of {}{}", base::list_of_ranks(missing),
                                  places.empty() ? "" : "; look on " + join(places)),
                      "",
                      {}});
}

// Says the same of many ranks in one line.
void find_cut(const std::vector<Dump>& dumps, TraceFindings& findings) {
  std::vector<int> cut, wrong;
  std::uint64_t invalid = 0;
  for (const Dump& dump : dumps) {
    if (!dump.whole) cut.push_back(dump.rank);
    if (dump.invalid > 0) wrong.push_back(dump.rank), invalid += dump.invalid;
  }
  if (!cut.empty())
    findings.push_back({"cut",
                        cut,
                        fmt::format("cut: the file of {}; the lines that it has are used",
                                    base::list_of_ranks(cut)),
                        "",
                        {}});
  if (invalid > 0)
    findings.push_back({"invalid",
                        wrong,
                        fmt::format("{} lines of {} are not valid and were left out", invalid,
                                    base::list_of_ranks(wrong)),
                        "",
                        {}});
}

}  // namespace

std::vector<Dump> read_dumps(std::vector<std::string> paths, TraceFindings& findings) {
  if (paths.empty()) paths.push_back(default_folder());
  std::map<int, Dump> by_rank;
  const auto add = [&](const std::string& path) {
    Dump dump = parse_dump(path, read_regular_file(path));
    if (!by_rank.empty()) check_job(by_rank.begin()->second, dump);
    const auto found = by_rank.find(dump.rank);
    if (found == by_rank.end() || is_better(dump, found->second))
      by_rank.insert_or_assign(dump.rank, std::move(dump));
  };
  std::string problem;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      add(path);
      continue;
    }
    for (const std::string& file : find_dumps(path)) {
      try {
        add(file);
      } catch (const UsageError& refused) {
        problem = refused.what();
        findings.push_back({"unreadable", {}, fmt::format("left out: {}", problem), "", {}});
      }
    }
  }
  if (by_rank.empty()) throw UsageError(problem);
  std::vector<Dump> dumps;
  for (auto& [rank, dump] : by_rank) dumps.push_back(std::move(dump));
  find_missing(dumps, findings);
  find_cut(dumps, findings);
  return dumps;
}

}  // namespace rondo::tools
