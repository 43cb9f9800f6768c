// SPDX-License-Identifier: Apache-2.0
//
// Writes the metrics of this process to a file, for node_exporter's textfile collector. The file is
// whole at every moment: a new one replaces it. Communicators of one process with the same path
// share the file.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "lib/metrics/totals.h"

namespace rondo::metrics {

// One file, and the thread that writes it: each `period`, when a communicator ends, and at the end.
// Thread-safe. A file that cannot be written is told once, and nothing else happens. The
// constructor throws Error(system) if there is no thread.
class File {
 public:
  // Returns a sample. Called without a lock of the caller, on any thread.
  using Sampler = std::function<Sample()>;

  // number: unique among the files of this process. labels: of every sample, see labels_of().
  File(std::string path, std::string labels, std::uint64_t number, milliseconds period);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const std::string& path() const noexcept { return path_; }

  using Place = std::list<Sampler>::iterator;
  Place add(Sampler sampler);
  // Takes the last sample and keeps its counts.
  void remove(Place place) noexcept;

 private:
  void run();
  std::string text();
  void write() noexcept;

  const std::string path_, run_labels_;
  const std::uint64_t number_;
  const milliseconds period_;
  std::mutex mutex_;  // of all but told_
  std::condition_variable changed_;
  bool due_ = false, ending_ = false;
  std::list<Sampler> open_;
  Totals ended_;  // of communicators that are gone
  Totals::Labels labels_;
  bool told_ = false;  // only who writes uses it: the thread, then the destructor
  std::thread thread_;
};

// Lists a communicator in the file of this path while it lives. The file is shared with other
// communicators of this process, whose first one gives the labels, and ends with the last.
// Thread-bound. Throws as File does.
class Listing {
 public:
  Listing(const std::string& path, const std::string& labels, milliseconds period,
          File::Sampler sampler);
  ~Listing();
  Listing(const Listing&) = delete;
  Listing& operator=(const Listing&) = delete;

 private:
  const std::shared_ptr<File> file_;
  const File::Place place_;
};

}  // namespace rondo::metrics
