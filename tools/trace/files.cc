// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>

#include "base/text.h"
#include "tools/shared/text.h"
#include "tools/trace/findings.h"

namespace rondo::tools {
namespace {

namespace fs = std::filesystem;
using Paths = std::vector<std::string>;

constexpr std::size_t most_hosts_told = 8;
constexpr std::chrono::seconds same_program{10};

[[noreturn]] void refuse_dump(const std::string& path, const std::string& problem) {
  throw UsageError(base::printable(fmt::format("{}: {}", path, problem)));
}

Dump read_dump(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error) && !error) refuse_dump(path, "not a file");
  const auto size = error ? 0 : fs::file_size(path, error);
  std::string text(std::min<std::uintmax_t>(size, most_dump_bytes + 1), ' ');
  std::ifstream file;
  if (!error) file.open(path, std::ios::binary);
  if (!file.is_open())
    refuse_dump(path, "cannot be read: " + base::describe_errno(error ? error.value() : errno));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_dump(path, std::move(text));
}

// Returns the folder to which ranks write.
std::string default_folder() {
  const auto variable = [](const char* name, const char* otherwise) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr || *value == '\0' ? otherwise : value);
  };
  const std::string given = variable("RONDO_DUMP", "off"), temporary = variable("TMPDIR", "/tmp");
  return given != "off" ? given
                        : fmt::format("{}/rondo-{}/dumps",
                                      temporary.front() == '/' ? temporary : "/tmp", ::geteuid());
}

// The files NAME.dump, or the folders.
Paths list_folder(const std::string& folder, bool folders) {
  Paths paths;
  std::error_code error, ignored;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error))
    if (folders ? entry->is_directory(ignored) : entry->path().extension() == ".dump")
      paths.push_back(entry->path().string());
  if (error) refuse_dump(folder, "cannot be read: " + base::describe_errno(error.value()));
  std::ranges::sort(paths);
  return paths;
}

// The dumps in the folder, or in the newest folder below it. A folder is one communicator; others
// that were written at nearly the same time may be of one program.
Paths find_dumps(const std::string& folder, TraceFindings& findings) {
  Paths paths = list_folder(folder, false);
  if (!paths.empty()) return paths;
  std::multimap<fs::file_time_type, std::string, std::greater<>> jobs;
  for (const std::string& job : list_folder(folder, true)) {
    std::error_code error;
    const auto time = fs::last_write_time(job, error);
    if (!error && !list_folder(job, false).empty()) jobs.emplace(time, job);
  }
  if (jobs.empty())
    refuse_dump(folder,
                "has no dumps; a rank writes one when its communicator fails, on the signal of "
                "RONDO_DUMP_SIGNAL, and in Communicator::dump()");
  const auto [newest, path] = *jobs.begin();
  for (const auto& [time, job] : jobs)
    if (job != path && newest - time < same_program)
      findings.push_back({"other_job", {}, base::printable("written at this time too: " + job)});
  return list_folder(path, false);
}

// Name, group and size.
std::string name_of_job(const Dump& dump) {
  const DumpLine& line = dump.written;
  return fmt::format("{}{} ({} ranks)", line.text("job"),
                     line.has("group") ? " " + line.text("group") : "", line.rank("size"));
}

// A rank may have several dumps; the one that is worth most is read.
std::pair<bool, std::int64_t> worth(const Dump& dump) {
  return {dump.written.raw("why") == "failure", dump.time};
}

}  // namespace

Dumps read_dumps(Paths paths, TraceFindings& findings) {
  const auto leave_out = [&](const std::string& why) {
    findings.push_back({"left_out", {}, "left out: " + why});
  };
  if (paths.empty()) paths.push_back(default_folder());
  Dumps all;  // files that were named, then others
  std::error_code error;
  const auto folders = std::stable_partition(
      paths.begin(), paths.end(),
      [&](const std::string& path) { return !fs::is_directory(path, error); });
  for (auto path = paths.begin(); path != folders; ++path) all.push_back(read_dump(*path));
  const auto named = static_cast<std::ptrdiff_t>(all.size());
  for (auto folder = folders; folder != paths.end(); ++folder)
    for (const std::string& file : find_dumps(*folder, findings)) try {
        all.push_back(read_dump(file));
      } catch (const UsageError& refused) {
        leave_out(refused.what());
      }
  if (all.empty()) throw UsageError(findings.back().text);
  // Files of older jobs may lie in a folder.
  const Dump& newest =
      *std::max_element(all.begin(), named > 0 ? all.begin() + named : all.end(),
                        [](const Dump& one, const Dump& other) { return one.time < other.time; });
  std::map<int, Dump*> by_rank;
  for (Dump& dump : all) {
    if (name_of_job(dump) == name_of_job(newest)) {
      const auto [place, is_new] = by_rank.try_emplace(dump.rank, &dump);
      if (!is_new && worth(dump) > worth(*place->second)) place->second = &dump;
      continue;
    }
    const std::string why =
        base::printable(fmt::format("{} is of job {}, and {} of {}", dump.path, name_of_job(dump),
                                    newest.path, name_of_job(newest)));
    if (&dump - all.data() < named) throw UsageError("files of two jobs: " + why);
    leave_out(why);
  }
  Dumps dumps;
  for (const auto& [rank, dump] : by_rank) dumps.push_back(std::move(*dump));
  return dumps;
}

const Dump* find_dump(const Dumps& dumps, int rank) {
  const auto found = std::ranges::lower_bound(dumps, rank, {}, &Dump::rank);
  return found != dumps.end() && found->rank == rank ? &*found : nullptr;
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
    if (find_dump(dumps, rank) != nullptr) continue;
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
  tell("cut", cut, "files that are cut: ", "; the lines that are there are used");
  tell("invalid", wrong, "invalid lines of ", fmt::format(" that were left out: {}", invalid));
}

}  // namespace rondo::tools
