// SPDX-License-Identifier: Apache-2.0
//
// Lists what rank 0 puts into the rendezvous file or the program's store, one line of printable
// text:
//
//   announcement = "rondo 1 job=" 16 hex digits " host=" text " process=" text
//                  " at=" address *("," address) LF
//
// It says where rank 0 listens and holds no secret. An announcement that an earlier job has left
// behind is recognised in three ways: its process is gone, nobody listens there, or the listener
// refuses the job's nonce.
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
// No value for anything else.
std::optional<Announcement> parse_announcement(std::string_view text);

// This process: "4711.831223.4026531836", its number, start time and process namespace. No other
// process has the same text while the machine is up.
std::string process_identity();
// Whether the process that made the announcement lives. unknown: it runs on another host or in
// another process namespace, or /proc does not say.
enum class Liveness { alive, gone, unknown };
Liveness liveness_of(const Announcement& announcement);

// The board: where announcements are kept. Thread-bound to the thread that connects.
class Board {
 public:
  virtual ~Board() = default;
  // Rank 0: puts the announcement there. Throws Error if that fails. A file board also throws if
  // another living process has announced itself there.
  virtual void announce(const Announcement& announcement) = 0;
  // Rank 0: removes what this object announced, if that is possible.
  virtual void withdraw() noexcept = 0;
  // The others: returns the announcement that is there now. No value if there is none; then `why`
  // says what was found. Waits until `until` at most.
  virtual std::optional<Announcement> look(base::TimePoint until, std::string& why) = 0;
};

// path: absolute. The file (mode 0600) is replaced as a whole. It is removed only if it still has
// this announcement.
std::unique_ptr<Board> file_board(std::string path);
std::unique_ptr<Board> store_board(Store& store);

}  // namespace rondo::rendezvous
