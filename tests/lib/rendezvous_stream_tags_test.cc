// SPDX-License-Identifier: Apache-2.0
#include "lib/wire/stream.h"

#include <sys/socket.h>

#include <vector>

#include "base/handshake.h"
#include "catch.h"
#include "lib/wire/socket.h"

namespace rondo::tests {
namespace {

// Two ends of one connection whose frames have tags or have none.
struct Connection {
  explicit Connection(base::Protection protection) {
    int sockets[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) == 0);
    const int room = 64 << 10;  // whatever net.core.wmem_default says
    REQUIRE(::setsockopt(sockets[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0);
    near.emplace(base::FileDescriptor(sockets[0]));
    far.emplace(base::FileDescriptor(sockets[1]));
    base::Initiator initiator({}, 0, "secret", {.protection = protection});
    base::Acceptor acceptor(0, "secret", {});
    const base::ProofBytes proof = initiator.answer(acceptor.challenge(initiator.hello()));
    near->protect(initiator.agreement());
    far->protect(acceptor.agreement(proof));
  }

  // Moves bytes until `count` frames have come or time is up.
  std::vector<wire::StreamFrame> receive(std::size_t count) {
    const base::TimePoint until = base::after(base::Clock::now(), milliseconds{20'000});
    std::vector<wire::StreamFrame> frames;
    while (frames.size() < count && !far->ended() && base::Clock::now() < until) {
      near->write();
      far->read();
      while (auto frame = far->take_frame()) frames.push_back(std::move(*frame));
    }
    return frames;
  }

  std::optional<wire::Stream> near, far;
};

std::vector<std::byte> payload_of(std::uint16_t type) {
  return std::vector<std::byte>(std::size_t{type} * 37 % 3000, static_cast<std::byte>(type));
}

std::vector<std::byte> frame_of(std::uint16_t type) {
  return wire::make_frame(type, payload_of(type));
}

}  // namespace

TEST_CASE("frames come whole and in order, whoever keeps them until they are sent") {
  for (const base::Protection protection : {base::Protection::none, base::Protection::headers}) {
    Connection connection(protection);
    std::vector<std::byte> shared;
    for (std::uint16_t type = 10; type < 1000; ++type) {
      const auto frame = frame_of(type);
      shared.insert(shared.end(), frame.begin(), frame.end());
    }
    for (std::uint16_t type = 0; type < 10; ++type) connection.near->send(frame_of(type));
    connection.near->send_shared(shared);  // more than a socket takes at once
    CHECK(connection.near->has_unsent());
    CHECK(connection.near->unsent_bytes() < shared.size() / 4);
    for (std::uint16_t type = 1000; type < 1010; ++type) connection.near->send(frame_of(type));
    const auto frames = connection.receive(1010);
    REQUIRE(frames.size() == 1010);
    bool right = true;
    for (std::size_t i = 0; i < frames.size(); ++i)
      right = right && frames[i].type == i &&
              frames[i].payload == payload_of(static_cast<std::uint16_t>(i));
    CHECK(right);
    CHECK_FALSE(connection.near->has_unsent());
    CHECK(connection.far->why().empty());
    // After the shared part frames have tags as before.
    connection.near->send(frame_of(7));
    CHECK(connection.receive(1).size() == 1);
  }
}

TEST_CASE("a frame without a tag ends a connection that has them") {
  Connection connection(base::Protection::headers);
  auto frame = frame_of(5);
  frame.resize(frame.size() + base::tag_bytes);
  REQUIRE(::send(connection.near->descriptor(), frame.data(), frame.size(), 0) ==
          static_cast<ssize_t>(frame.size()));
  CHECK(connection.receive(1).empty());
  CHECK(connection.far->code() == Errc::authentication);
  CHECK(connection.far->why() == base::wrong_tag);
}

TEST_CASE("a frame without a tag is told although the connection has ended behind it") {
  Connection connection(base::Protection::headers);
  auto frame = frame_of(5);
  frame.resize(frame.size() + base::tag_bytes);
  REQUIRE(::send(connection.near->descriptor(), frame.data(), frame.size(), 0) ==
          static_cast<ssize_t>(frame.size()));
  connection.near.reset();
  while (!connection.far->ended()) connection.far->read();
  CHECK_FALSE(connection.far->take_frame());
  CHECK(connection.far->code() == Errc::authentication);
  CHECK(connection.far->why() == base::wrong_tag);
}

}  // namespace rondo::tests
