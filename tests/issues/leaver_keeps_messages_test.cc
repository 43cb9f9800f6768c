// SPDX-License-Identifier: Apache-2.0
//
// A rank that left over tcp with unread bytes in a socket reset its connections. Messages that it
// had sent and that its peer had not read yet were lost: "rank 1 has left".
#include <latch>
#include <utility>
#include <vector>

#include <rondo/communicator.h>

#include "catch.h"
#include "support/ranks.h"

namespace rondo::testing {

TEST_CASE("messages of a rank that has left over tcp are received") {
  // Together they are more than the socket of a receiver takes that does not read, and less than a
  // sender has credit for.
  constexpr std::size_t messages = 16, bytes = 30'000;
  const int leaver = GENERATE(0, 1);
  const bool named = GENERATE(true, false);
  Setup setup;
  setup.over = Over::tcp;
  std::latch sent(1), unread(1), leaving(1);
  CHECK_NOTHROW(run_communicators(setup, "leaving", [&](Communicator& c, int rank) {
    std::vector<std::uint8_t> memory(bytes);
    if (rank == leaver) {
      for (std::size_t i = 0; i < messages; ++i) {
        memory.assign(bytes, static_cast<std::uint8_t>(i));
        c.send(buffer_of(std::span(memory)), 1 - rank, 1).wait();
      }
      sent.count_down();
      unread.wait();
      leaving.count_down();
      const Communicator last = std::move(c);
      return;
    }
    sent.wait();
    c.send(buffer_of(std::span(memory)), leaver, 2).wait();  // nobody receives it
    unread.count_down();
    leaving.wait();
    for (std::size_t i = 0; i < messages; ++i) {
      const Buffer out = buffer_of(std::span(memory));
      (named ? c.receive(out, leaver, 1) : c.receive_any(out, 1)).wait();
      expect(memory == std::vector<std::uint8_t>(bytes, static_cast<std::uint8_t>(i)), "content");
    }
  }));
}

}  // namespace rondo::testing
