// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/communicator.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tools/measure/memory.h"
#include "tools/measure/pattern.h"

namespace rondo::tools {

// Messages from rank 0 to rank 1 of two ranks: a stream of them, and a ping-pong of one. Both ranks
// make the same calls in the same order. A failure of the communicator throws.
class OneWay {
 public:
  // The messages of a stream. All are under way at once, so each has memory of its own: the first
  // ones are sent from `in` and received into `out`, each other one `distance` bytes behind.
  struct Messages {
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
  OneWay(Communicator& communicator, const Pattern& pattern, const Messages& messages,
         const Place& place, bool fresh, bool checked);

  // Runs one iteration after a barrier, which is not timed. Each returns microseconds on rank 0,
  // and 0 on rank 1. In a stream, rank 1 has called its receives before rank 0 sends, and answers
  // when it has every message; the time is that of one message, with its share of the answer.
  double stream();
  // Half of the round trip of one message to rank 1 and of another one back.
  double ping_pong();
  // The wrong elements that the last iteration left on this rank.
  std::uint64_t count_wrong();

 private:
  bool is_first() const { return communicator_.rank() == 0; }
  int peer() const { return is_first() ? 1 : 0; }
  Buffer place(const Buffer& first, std::size_t message) const;
  std::size_t bytes_of_first(std::size_t messages) const;
  void write(std::size_t messages, bool sends, bool receives);
  void round_trip(const Buffer& in, const Buffer& out);

  Communicator& communicator_;
  const Pattern& pattern_;
  const Messages messages_;
  const Place place_;
  const bool fresh_, checked_;
  std::vector<Work> works_;    // the messages of a stream
  std::size_t received_ = 0;   // messages that the last iteration brought to this rank
  std::uint64_t written_ = 0;  // messages so far: each has its own data
};

}  // namespace rondo::tools
