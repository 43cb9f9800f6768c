// SPDX-License-Identifier: Apache-2.0
#include "lib/metrics/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/file_descriptor.h"
#include "base/log.h"
#include "base/own_descriptors.h"
#include "base/thread.h"

namespace rondo::metrics {
namespace {

// Returns 0, or the error number.
int write_all(int file, std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written < 0 ? errno : EIO;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

// The name of the new file does not end in .prom, so no collector reads it before it is whole. Each
// File has one of its own: two with one path, in two processes by mistake, write whole files too.
int replace_file(const std::string& path, std::uint64_t number, std::string_view text) {
  const std::string fresh = fmt::format("{}.{}-{}.tmp", path, ::getpid(), number);
  base::FileDescriptor file(::open(
      fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644));
  int error = file ? write_all(file.get(), text) : errno;
  if (!file) return error;
  // Lets a collector that runs as another user read the file, whatever the umask. A file system
  // without modes refuses this and has a rule of its own.
  static_cast<void>(::fchmod(file.get(), 0644));
  file.reset();
  if (error == 0 && std::rename(fresh.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) ::unlink(fresh.c_str());
  return error;
}

}  // namespace

File::File(std::string path, std::string labels, std::uint64_t number, milliseconds period)
    : path_(std::move(path)),
      run_labels_(std::move(labels)),
      number_(number),
      period_(std::min<milliseconds>(period, std::chrono::hours{24 * 365})) {
  thread_ = base::start_thread("rondo-metrics", [this] { run(); });
}

File::~File() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
  write();
}

File::Place File::add(Sampler sampler) {
  Place place;
  {
    const std::lock_guard lock(mutex_);
    place = open_.insert(open_.end(), std::move(sampler));
    due_ = true;
  }
  changed_.notify_one();
  return place;
}

void File::remove(Place place) noexcept {
  {
    const std::lock_guard lock(mutex_);
    try {
      ended_.add((*place)(), labels_, false);
    } catch (const std::exception&) {  // no memory: the last counts are lost
    }
    open_.erase(place);
    due_ = true;
  }
  changed_.notify_one();
}

void File::run() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    changed_.wait_for(lock, period_, [this] { return due_ || ending_; });
    if (ending_) return;
    due_ = false;
    lock.unlock();
    write();
    lock.lock();
  }
}

std::string File::text() {
  const std::lock_guard lock(mutex_);
  Totals totals = ended_;
  for (const Sampler& sampler : open_) totals.add(sampler(), labels_, true);
  return totals.text(run_labels_);
}

void File::write() noexcept {
  try {
    const int error = replace_file(path_, number_, text());
    if (error == 0 || std::exchange(told_, true)) return;
    base::log_line(
        base::LogLevel::warning,
        fmt::format("the metrics cannot be written to {}: {}. Operations go on without them; see "
                    "RONDO_METRICS (Options::metrics)",
                    path_, std::generic_category().message(error)));
  } catch (const std::exception&) {  // no memory: the next time may do
  }
}

namespace {

// The files of this process. A forked child has others: it must not use its parent's.
struct Known {
  unsigned generation = 0;
  std::weak_ptr<File> file;
};
std::mutex known_mutex;
std::uint64_t files_made = 0;

std::vector<Known>& known_files() {
  static std::vector<Known> files;
  return files;
}

std::shared_ptr<File> file_of(const std::string& path, const std::string& labels,
                              milliseconds period) {
  const std::lock_guard lock(known_mutex);
  std::vector<Known>& files = known_files();
  const unsigned generation = base::process_generation();
  std::erase_if(files, [](const Known& known) { return known.file.expired(); });
  for (const Known& known : files)
    if (auto file = known.file.lock();
        file && known.generation == generation && file->path() == path)
      return file;
  auto file = std::make_shared<File>(path, labels, ++files_made, period);
  files.push_back({generation, file});
  return file;
}

}  // namespace

Listing::Listing(const std::string& path, const std::string& labels, milliseconds period,
                 File::Sampler sampler)
    : file_(file_of(path, labels, period)), place_(file_->add(std::move(sampler))) {}

Listing::~Listing() {
  file_->remove(place_);
}

}  // namespace rondo::metrics
