// SPDX-License-Identifier: Apache-2.0
//
// Measures the link between two ranks with messages.
#pragma once

#include <rondo/communicator.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rondo::tools {

// The measurements of this rank with one peer. Both ranks of a pair make the same calls in the same
// order, one as the first and one as the second. Thread-bound. A failure of the communicator
// throws.
//
// Every message says whether more will come, so only one rank looks at its clock:
//
//   latency   = (word word)*           the first rank sends a word, the second one sends it back;
//                                      the word is 1 while more will come, else 0
//   bandwidth = (block empty word)+    growing blocks; the word is the size of the next one, with
//               block* empty           the highest bit set if the stream has that size. Then a
//                                      window of blocks; one begins with 1 if the block a window
//                                      behind it will come. The receiver sends the empty messages.
class Link {
 public:
  struct Limits {
    std::size_t bytes = 0;   // of a message, at most; at least 8
    std::size_t window = 1;  // messages under way
    std::chrono::nanoseconds time{};
  };
  Link(Communicator& communicator, const Limits& limits);

  // Half of a round trip of 8 bytes in microseconds, the tenth percentile of at most 200. Returns 0
  // on the second rank.
  double latency(int peer, bool first);
  // GB/s from the sender to the receiver: the bytes over the time from the first send until the
  // answer to the last message has come. Returns 0 on the receiver.
  double send_stream(int peer);
  void receive_stream(int peer);

 private:
  std::byte* place(std::size_t message) { return memory_.data() + message % window_ * bytes_; }
  Buffer block(std::size_t message, std::size_t bytes);
  void say(int peer, std::uint64_t word);
  std::uint64_t receive(int peer);
  std::size_t grow_as_sender(int peer);
  std::size_t grow_as_receiver(int peer);

  Communicator& communicator_;
  const std::size_t bytes_, window_;
  const std::chrono::nanoseconds time_;
  std::size_t most_ = 0;           // messages of the stream that begins
  std::vector<std::byte> memory_;  // of a window
  std::vector<Work> works_;
};

}  // namespace rondo::tools
