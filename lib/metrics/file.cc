// SPDX-License-Identifier: Apache-2.0
#include "lib/metrics/file.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/file.h"
#include "base/log.h"
#include "base/own_descriptors.h"
#include "base/thread.h"

namespace rondo::metrics {
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

// The name of the new file does not end in .prom, so no collector reads it before it is whole. Each
// File has one of its own: two with one path, in two processes by mistake, write whole files too.
// A collector that runs as another user may read the file.
void File::write() noexcept {
  try {
    const int error = base::replace_file(
        path_, fmt::format("{}.{}-{}.tmp", path_, ::getpid(), number_), text(), 0644);
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
