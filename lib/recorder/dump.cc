// SPDX-License-Identifier: Apache-2.0
//
// Files: FOLDER/JOB/rankR.WHY.dump. One folder for each communicator, so that files of all ranks
// are together where the folder is shared, and the oldest can go without a look into them.
#include "lib/recorder/dump.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <exception>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include <rondo/error.h>

#include "base/file.h"
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
  std::error_code ignored;
  return name.size() == job_digits &&
         name.find_first_not_of("0123456789abcdef") == std::string::npos &&
         entry.symlink_status(ignored).type() == fs::file_type::directory;
}

// Leaves out what cannot be read.
template <class Use>
void for_each_entry(const fs::path& folder, Use use) {
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; entry != end; entry.increment(ignored))
    use(*entry);
}

// Removes the dumps of the oldest jobs but this one, and nothing else. Other ranks may do the same
// meanwhile.
void remove_oldest(const std::string& folder, const fs::path& own) {
  std::error_code ignored;
  std::vector<std::pair<fs::file_time_type, fs::path>> jobs;
  for_each_entry(folder, [&](const fs::directory_entry& entry) {
    if (is_job(entry) && entry.path() != own)
      jobs.emplace_back(fs::last_write_time(entry.path(), ignored), entry.path());
  });
  if (jobs.size() < kept_jobs) return;
  std::ranges::sort(jobs);
  jobs.resize(jobs.size() - kept_jobs + 1);
  const auto youngest = fs::file_time_type::clock::now() - kept_time;
  for (const auto& [time, job] : jobs) {
    if (time > youngest) return;
    for_each_entry(job, [&](const fs::directory_entry& file) {
      if (file.path().extension() == ".dump") fs::remove(file.path(), ignored);
    });
    fs::remove(job, ignored);
  }
}

[[noreturn]] void refuse(const std::string& path, int error) {
  throw Error(Errc::system, fmt::format("the dump cannot be written to {}: {}",
                                        base::printable(path), base::describe_errno(error)));
}

// If the process dies meanwhile, the file has no last line, and a reader says that it is cut.
int write_new(const std::string& path, std::string_view text) {
  const base::FileDescriptor file(::open(
      path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
  if (!file) return errno;
  const int error = base::write_all(file.get(), text);
  std::error_code ignored;
  if (error != 0 && fs::is_regular_file(path, ignored)) ::unlink(path.c_str());
  return error;
}

// The program's own path may lead to a pipe or a device, which is written to and stays. A link to a
// file is refused: behind it may be a log, as behind /dev/stderr.
int write_at(const std::string& path, const std::string& fresh, std::string_view text) {
  std::error_code ignored;
  const fs::file_type there = fs::status(path, ignored).type();
  if (there == fs::file_type::regular || there == fs::file_type::not_found)
    return fs::is_symlink(path, ignored) ? ELOOP : base::replace_file(path, fresh, text, 0600);
  const base::FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK));
  return file ? base::write_all(file.get(), text) : errno;
}

// A relative folder is that of now: the program may change its working directory.
std::string folder_of_dumps() {
  std::string folder = settings::variable("RONDO_DUMP").value_or(std::string());
  std::error_code ignored;  // there is no working directory
  return folder.empty() || folder == "off" ? folder : fs::absolute(folder, ignored).string();
}

}  // namespace

Dumps::Dumps(Job job) : job_(std::move(job)), folder_(folder_of_dumps()) {}

std::string Dumps::write_in_folder(Why why, std::string_view text) const {
  const std::string folder = folder_.empty() || is_off() ? rendezvous::dump_directory() : folder_;
  const std::string job = fmt::format("{}/{:016x}", folder, job_.number);
  std::string path = fmt::format("{}/rank{}.{}.dump", job, job_.rank, name_of(why));
  // Another process may remove the folder of an old job before the file is in it.
  int error = ENOENT;
  for (int tries = 0; tries < 2 && error == ENOENT; ++tries) {
    rendezvous::make_dump_directory(job, 0);
    remove_oldest(folder, job);
    error = write_new(path, text);
  }
  if (error != 0) refuse(path, error);
  return path;
}

std::string Dumps::write(const engine::Snapshot& seen, Why why, std::string_view path,
                         const Heard& heard) const {
  using std::chrono::duration_cast, std::chrono::system_clock;
  std::unique_lock lock(writing_, std::defer_lock);
  if (why != Why::failure) lock.lock();
  const nanoseconds since = base::Clock::now() - seen.now;
  const auto wall = duration_cast<nanoseconds>(system_clock::now().time_since_epoch()) - since;
  const std::string text = text_of(seen, why, job_, heard, wall.count());
  if (path.empty()) return write_in_folder(why, text);
  std::string file(path);
  const std::string fresh = fmt::format("{}.{:016x}-{}.new", path, job_.number, job_.rank);
  if (const int error = write_at(file, fresh, text); error != 0) refuse(file, error);
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
