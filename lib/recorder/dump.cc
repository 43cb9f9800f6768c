// SPDX-License-Identifier: Apache-2.0
//
// Files: FOLDER/JOB/rankR.WHY.dump. One folder for each communicator, so that files of all ranks
// are together where the folder is shared, and the oldest can go without a look into them.
#include "lib/recorder/dump.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include <rondo/error.h>

#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/text.h"
#include "lib/rendezvous/user_directory.h"
#include "lib/settings/environment.h"

namespace rondo::recorder {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kept_jobs = 16;
// Many communicators may fail at once, and their errors name files: those stay for a while.
constexpr std::chrono::minutes kept_time{1};
constexpr std::size_t job_digits = 16;

bool is_job(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename();
  return name.size() == job_digits &&
         name.find_first_not_of("0123456789abcdef") == std::string::npos && entry.is_directory() &&
         !entry.is_symlink();
}

// Removes the dumps of the oldest jobs but this one, and nothing else. Other ranks may do the same
// meanwhile.
void remove_oldest(const std::string& folder, const fs::path& own) {
  std::error_code ignored;
  std::vector<std::pair<fs::file_time_type, fs::path>> jobs;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (is_job(entry) && entry.path() != own)
      jobs.emplace_back(fs::last_write_time(entry.path(), ignored), entry.path());
  if (jobs.size() < kept_jobs) return;
  std::ranges::sort(jobs);
  jobs.resize(jobs.size() - kept_jobs + 1);
  const auto youngest = fs::file_time_type::clock::now() - kept_time;
  for (const auto& [time, job] : jobs) {
    if (time > youngest) return;
    for (const auto& file : fs::directory_iterator(job, ignored))
      if (file.path().extension() == ".dump") fs::remove(file.path(), ignored);
    fs::remove(job, ignored);
  }
}

[[noreturn]] void refuse(const std::string& path, int error) {
  throw Error(Errc::system, fmt::format("the dump cannot be written to {}: {}", path,
                                        base::describe_errno(error)));
}

void make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) refuse(path, errno);
}

// If the process dies meanwhile, the file has no last line, and a reader says that it is cut.
void write_file(const std::string& path, std::string_view text) {
  const base::FileDescriptor file(::open(
      path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) refuse(path, errno);
  while (!text.empty()) {
    const ssize_t count = ::write(file.get(), text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int error = count < 0 ? errno : EIO;
      if (S_ISREG(status.st_mode)) ::unlink(path.c_str());
      refuse(path, error);
    }
    text.remove_prefix(static_cast<std::size_t>(count));
  }
}

constexpr std::string_view name_of(Why why) noexcept {
  switch (why) {
    case Why::failure:
      return "failure";
    case Why::slow:
      return "slow";
    case Why::call:
      return "call";
    case Why::signal:
      return "signal";
  }
  return "call";
}

}  // namespace

Dumps::Dumps(Job job)
    : job_(std::move(job)), folder_(settings::variable("RONDO_DUMP").value_or(std::string())) {}

std::string Dumps::place(Why why) const {
  const std::string folder = folder_.empty() || is_off() ? rendezvous::dump_directory() : folder_;
  const std::string job = fmt::format("{}/{:016x}", folder, job_.number);
  make_folder(job);
  remove_oldest(folder, job);
  return fmt::format("{}/rank{}.{}.dump", job, job_.rank, name_of(why));
}

std::string Dumps::write(const engine::Snapshot& seen, Why why, std::string_view path,
                         const Heard& heard) const {
  using std::chrono::duration_cast, std::chrono::system_clock;
  std::unique_lock lock(writing_, std::defer_lock);
  if (why != Why::failure) lock.lock();
  const nanoseconds since = base::Clock::now() - seen.now;
  const auto wall = duration_cast<nanoseconds>(system_clock::now().time_since_epoch()) - since;
  const std::string text = text_of(seen, why, job_, heard, wall.count());
  const std::string file = path.empty() ? place(why) : std::string(path);
  write_file(file, text);
  return file;
}

std::string Dumps::write_or_log(const engine::Snapshot& seen, Why why, const Heard& heard) {
  try {
    return write(seen, why, {}, heard);
  } catch (const std::exception& error) {
    base::log_line(base::LogLevel::warning,
                   fmt::format("rank {}: {} (RONDO_DUMP=folder, or off)", job_.rank, error.what()));
    return {};
  }
}

std::string Dumps::failed(const engine::Snapshot& seen, const Heard& heard) noexcept {
  if (is_off()) return {};
  try {
    const std::string path = write_or_log(seen, Why::failure, heard);
    return path.empty() ? std::string() : "; recorded in " + base::printable(path);
  } catch (const std::bad_alloc&) {
    return {};
  }
}

}  // namespace rondo::recorder
