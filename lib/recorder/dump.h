// SPDX-License-Identifier: Apache-2.0
//
// Writes what this rank knows of its communicator to a file: at the first error, at the first
// operation that waits for long, and when it is asked. The format is in text.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/engine/snapshot.h"
#include "lib/settings/settings.h"

namespace rondo::recorder {

enum class Why : std::uint8_t { failure, slow, call, signal };
std::string_view name_of(Why why) noexcept;

// Lists what does not change after connect().
struct Job {
  int rank = 0, size = 1;
  std::string group;  // of a split
  std::uint64_t number = 0;
  std::string transport;                // of the communicator: "shm+tcp"
  std::vector<std::string> transports;  // by rank
  std::vector<std::string> hosts;       // likewise, their names
  settings::Settings settings;
};

// Lists what rank 0 has heard from each rank.
using Heard = std::vector<std::pair<int, std::string>>;

// Returns the text of a dump. wall_ns: the time of day when the snapshot was taken.
std::string text_of(const engine::Snapshot& seen, Why why, const Job& job, const Heard& heard,
                    std::int64_t wall_ns);

// Writes the dumps of one communicator. Thread-safe. Locks its mutex, but not for a failure, which
// comes once and waits for nobody.
class Dumps {
 public:
  // Reads RONDO_DUMP; a relative folder is in the working directory of now.
  explicit Dumps(Job job);

  // Writes the dump of a failure. Returns what the error says besides, "; recorded in PATH"; empty
  // if dumps are off, or if it cannot be written: then a line goes to the log.
  std::string failed(const engine::Snapshot& seen, const Heard& heard) noexcept;
  // Writes a dump the first time that an operation waits for long, unless dumps are off.
  template <class Look>
  void waits(Look look) noexcept {
    if (is_off() || waited_.exchange(true)) return;
    try {
      write_or_log(look(), Why::slow, {});
    } catch (const std::bad_alloc&) {  // there is no dump
    }
  }
  // Returns the path of the file. An empty path: the usual folder, also if dumps are off. A file at
  // another path stays until the new one is whole. Throws Error(system) with the path and the
  // cause.
  std::string write(const engine::Snapshot& seen, Why why, std::string_view path,
                    const Heard& heard = {}) const;

  bool is_off() const noexcept { return folder_ == "off"; }

 private:
  std::string write_or_log(const engine::Snapshot& seen, Why why, const Heard& heard);
  std::string write_in_folder(Why why, std::string_view text) const;

  const Job job_;
  const std::string folder_;  // "off": only dumps that are asked for; empty: the default
  std::atomic<bool> waited_{false};
  mutable std::mutex writing_;  // of dumps that may come from several threads at once
};

}  // namespace rondo::recorder
