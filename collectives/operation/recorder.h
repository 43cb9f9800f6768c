// SPDX-License-Identifier: Apache-2.0
//
// Keeps the last operations of a communicator that have ended, for dumps. An operation is
// written down once, when it ends, from what it knows itself; those under way are read from
// LaneCalls. So a start costs nothing, and an end costs the copy of one record. The clock is read
// only for the end of an operation that a look of the driver has found.
//
// Threads: thread-bound to whoever holds the engine's lock. Only the constructor allocates.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collectives/operation/operation.h"
#include "collectives/schedules/call.h"
#include "transports/transport.h"

namespace rondo::operation {

// Says what an operation waits for or does, or how it has ended.
enum class RecordState : std::uint8_t { memory, stream, ranks, moving, done, failed };

struct alignas(64) Record {
  // In a message, root is the peer (as int; -1: any rank), and plan the tag that is matched.
  schedules::Signature signature;
  transports::Lane lane = transports::Lane::bulk;
  RecordState state = RecordState::done;
  bool batch = false;  // several messages in one call
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;  // of the larger buffer; of all messages
  OperationTimes times;
  base::TimePoint ended{};
  char tag[32] = {};
};

class Recorder {
 public:
  // most: how many operations are kept; 0: none.
  explicit Recorder(std::size_t most) : records_(most) {}

  void ended(const Operation& operation, RecordState state, base::TimePoint now) noexcept {
    keep([&](Record& record) { write(record, operation, state, now); });
  }
  // write: fills in the whole record of a call that has ended without an operation.
  template <class Write>
  void keep(Write write) noexcept {
    if (records_.empty()) return;
    write(records_[next_]);
    next_ = next_ + 1 == records_.size() ? 0 : next_ + 1;
    ++written_;
    prefetch(records_[next_]);
  }
  // Describes an operation under way.
  static Record record_of(const Operation& operation, RecordState state) noexcept {
    Record record;
    write(record, operation, state, {});
    return record;
  }
  // The newest first, not more than `most`.
  template <class Use>
  void for_each(Use use, std::size_t most) const {
    const std::size_t count = std::min({static_cast<std::size_t>(written_), records_.size(), most});
    for (std::size_t i = 0; i < count; ++i)
      use(records_[(next_ + records_.size() - 1 - i) % records_.size()]);
  }

 private:
  // The cache lines of the next record come while the program goes on: no end waits for them.
  static void prefetch(const Record& record) noexcept {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&record);
    for (std::size_t line = 0; line < sizeof(Record); line += 64)
      __builtin_prefetch(bytes + line, 1);
  }
  static void write(Record& record, const Operation& operation, RecordState state,
                    base::TimePoint now) noexcept;

  std::vector<Record> records_;
  std::size_t next_ = 0;
  std::uint64_t written_ = 0;
};

// Says what this rank awaits from a peer in one lane, and what came last.
struct PeerView {
  transports::Lane lane = transports::Lane::bulk;
  int rank = 0;
  std::string address;  // of the link; empty: memory that both reach, or a link never used
  std::string expected, seen;
  std::uint64_t bytes = 0;  // that came from the peer, of the oldest call; of messages under way
  std::size_t queued = 0;   // frames under way to it
  base::TimePoint heard;    // when something came last; the default: never
};

}  // namespace rondo::operation
