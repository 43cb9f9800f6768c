// SPDX-License-Identifier: Apache-2.0
//
// What rank 0 puts into the rendezvous file or the program's store, one line of printable text:
//
//   announcement = "rondo 1 job=" 16 hex digits " host=" text " process=" text
//                  " at=" address *("," address) LF
//
// It tells where rank 0 listens and no secret. An announcement that an earlier job has left behind
// is recognised by its process being gone, by nobody listening there, or by the job's nonce, which
// the one who listens compares.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/store.h>

#include "base/clock.h"

namespace rondo::rendezvous {

inline constexpr std::size_t most_announcement_bytes = 4096;

struct Announcement {
  std::uint64_t job = 0;
  std::string host;     // base::host_identity() of rank 0
  std::string process;  // process_identity() of rank 0
  std::vector<std::string> addresses;
};
std::string write_announcement(const Announcement& announcement);
// No value for anything that is not one.
std::optional<Announcement> parse_announcement(std::string_view text);

// "4711.831223.4026531836": process, its start time, its process namespace. Never used again while
// the machine is up.
std::string process_identity();
// Of the process that made the announcement; unknown when it ran on another host or in another
// process namespace.
enum class Liveness { alive, gone, unknown };
Liveness liveness_of(const Announcement& announcement);

// Where announcements are kept.
class Board {
 public:
  virtual ~Board() = default;
  // Rank 0. Throws Error when it cannot be done, or when a living process other than this one has
  // announced itself there.
  virtual void announce(const Announcement& announcement) = 0;
  // Rank 0: takes back what this object announced, where that is possible.
  virtual void withdraw() noexcept = 0;
  // The others: what stands there now, if anything; `why` says what was found instead. Waits until
  // `until` at most.
  virtual std::optional<Announcement> look(base::TimePoint until, std::string& why) = 0;
};

// path: absolute. The file is replaced as a whole (mode 0600), withdrawn when it still is this
// announcement.
std::unique_ptr<Board> file_board(std::string path);
std::unique_ptr<Board> store_board(Store& store);

}  // namespace rondo::rendezvous
