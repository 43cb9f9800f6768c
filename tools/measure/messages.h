// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tools/measure/memory.h"
#include "tools/measure/pattern.h"
#include "tools/measure/role.h"

namespace rondo::tools {

// Messages between the two ranks of each pair: a window of them, and a ping-pong of one. All ranks
// make the same calls in the same order. A failure of the communicator throws.
class Messages {
 public:
  // The messages of a window. All are under way at once, so each has memory of its own: the first
  // ones are sent from `in` and received into `out`, each other one `distance` bytes behind.
  struct Window {
    Buffer in, out;
    std::size_t distance = 0;
    std::uint64_t count = 1;
  };
  // Where these buffers are. The two outlive the object.
  struct Place {
    BenchMemory& in;
    BenchMemory& out;
    OpOptions options{};  // of each message; on a GPU with its stream
  };
  // fresh: the data is written before every iteration. checked, which needs fresh: what an
  // iteration must bring is poisoned before it.
  Messages(Communicator& communicator, const Pattern& pattern, const Role& role,
           const Window& window, const Place& place, bool fresh, bool checked);

  // Each runs one iteration after a barrier, which is not timed, and returns microseconds; 0 on a
  // rank that times nothing.
  //
  // All receives are called before the barrier, all sends after it. A rank that receives answers
  // when it has every message, and a rank that sends times the iteration until this answer comes.
  // The time is that of one message, with its share of the answer.
  double window();
  // Half of the round trip of one message to the other rank and of another one back; the rank with
  // the smaller number times it.
  double ping_pong();
  // The wrong elements that the last iteration left on this rank.
  std::uint64_t count_wrong();

 private:
  Buffer place(const Buffer& first, std::size_t message) const;
  std::size_t bytes_of_first(std::size_t messages) const;
  void write(std::size_t messages, bool sends, bool receives);
  void round_trip(const Buffer& in, const Buffer& out);

  Communicator& communicator_;
  const Pattern& pattern_;
  const Role role_;
  const Window window_;
  const Place place_;
  const bool fresh_, checked_;
  std::vector<Work> sends_, receives_;  // of a window
  std::size_t received_ = 0;            // messages that the last iteration brought to this rank
  std::uint64_t written_ = 0;           // messages so far: each has its own data
};

}  // namespace rondo::tools
