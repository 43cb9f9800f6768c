// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "collectives/point/message_operation.h"

namespace rondo::engine {

// The held messages whose memory is on a GPU and whose mark there (gpu_port.h) has not been reached
// yet, by stream. A stream reaches its marks in order, so only the first of each is looked at.
//
// Threads: thread-bound to whoever holds the engine's lock. Failures: the functions that are not
// noexcept throw Error(system) when a GPU has failed; make_room() throws std::bad_alloc.
class HeldMarks {
 public:
  // Comes before add(): makes room for one more stream.
  void make_room() { streams_.reserve(streams_.size() + 1); }
  void add(point::MessageOperation& message) noexcept;
  void clear() noexcept { streams_.clear(); }
  // Whether a mark has been reached since the last look. Its message no longer waits for a GPU.
  bool look();
  // The driver is about to sleep: GPUs whose marks are awaited will wake it. False: a mark has been
  // reached already.
  bool prepare_sleep();

 private:
  struct Stream {
    point::MessageOperation *first, *last;
  };

  static bool take_reached(Stream& stream);

  std::vector<Stream> streams_;  // in which messages wait
};

}  // namespace rondo::engine
