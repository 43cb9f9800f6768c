// SPDX-License-Identifier: Apache-2.0
#include "lib/wire/stream.h"

#include <sys/socket.h>

#include <array>

#include "catch.h"

using namespace rondo;

TEST_CASE("shared bytes are sent in their place and are not copied", "[stream]") {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
  wire::Stream sender{base::FileDescriptor(ends[0])};
  const base::FileDescriptor receiver(ends[1]);
  constexpr std::size_t large = std::size_t{4} << 20;  // more than the kernel takes
  std::vector<std::byte> before(large, std::byte{1}), shared(large, std::byte{2}),
      after(1000, std::byte{3});
  std::vector<std::byte> second(2000, std::byte{4});

  sender.send(before);
  const std::size_t own = sender.unsent_bytes();
  REQUIRE(own > 0);
  sender.send_shared(shared);
  CHECK(sender.unsent_bytes() == own);
  sender.send(after);
  CHECK(sender.unsent_bytes() == own + after.size());
  // Only one shared part at a time: the second one is copied like other bytes.
  sender.send_shared(second);
  CHECK(sender.unsent_bytes() == own + after.size() + second.size());

  std::vector<std::byte> expected = before, came;
  for (const auto* part : {&shared, &after, &second})
    expected.insert(expected.end(), part->begin(), part->end());
  std::vector<std::byte> scratch(1 << 16);
  while (came.size() < expected.size()) {
    REQUIRE_FALSE(sender.ended());
    const ssize_t count = ::recv(receiver.get(), scratch.data(), scratch.size(), 0);
    if (count > 0) came.insert(came.end(), scratch.begin(), scratch.begin() + count);
    sender.write();
  }
  CHECK(came == expected);
  CHECK_FALSE(sender.has_unsent());
  CHECK(sender.unsent_bytes() == 0);
}

TEST_CASE("a frame longer than any frame ends the stream at once", "[stream]") {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
  wire::Stream sender{base::FileDescriptor(ends[0])};
  wire::Stream receiver{base::FileDescriptor(ends[1])};
  const std::vector<std::byte> longest(wire::most_payload_bytes), longer(longest.size() + 1);
  sender.send(wire::make_frame(1, longest));
  const std::vector<std::byte> begun = wire::make_frame(2, longer);
  sender.send(std::span(begun).first(100));
  receiver.read();
  const auto frame = receiver.take_frame();
  REQUIRE(frame);
  CHECK(frame->payload == longest);
  receiver.read();
  CHECK_FALSE(receiver.take_frame());
  CHECK(receiver.ended());
  CHECK_THAT(receiver.why(),
             Catch::Contains("a frame of " + std::to_string(longer.size()) + " bytes"));
}
