// SPDX-License-Identifier: Apache-2.0
//
// The halves of tcp links, apart from their links: the test holds the other end of each socket.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "base/file_descriptor.h"
#include "catch.h"
#include "conformance.h"
#include "support/idle_link.h"
#include "transports/tcp/frame_receiver.h"
#include "transports/tcp/piece.h"
#include "transports/tcp/sender.h"
#include "transports/tcp/striped_receiver.h"

namespace rondo::testing {
namespace {

// Learns from the header what follows, as the lane of messages does.
class LearningSink final : public transports::Sink {
 public:
  bool announces = true, holds = false, held = false;
  transports::Blob buffer;
  int arrivals = 0, frames = 0;

  std::optional<transports::Receive> expected(transports::Link&, std::size_t) override {
    const bool knows = held ? !holds : arrivals != frames && announces;
    if (!knows) return std::nullopt;
    return transports::Receive{buffer.data(), buffer.size()};
  }
  bool awaits_header(transports::Link&) override { return arrivals == frames; }
  transports::Header arrived(transports::Link&, const transports::HeaderBytes& header) override {
    CHECK(header == header_of(7));
    held = holds;
    if (held) return transports::Header::hold;
    ++arrivals;
    return transports::Header::accept;
  }
  std::size_t data(transports::Link&, std::span<const std::byte> view) override {
    return view.size();
  }
  void received(transports::Link&) override { ++frames; }
  void sent(transports::Link&) override {}
  void broken(transports::Link&, std::error_code, std::string_view, bool) override {}
};

// A connection between a half under test and the test.
struct Wire {
  Wire() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    own = base::FileDescriptor(ends[0]);
    peer = base::FileDescriptor(ends[1]);
    // Room for one piece and a part of the next, whatever the system's default is: the kernel
    // doubles the number.
    const int bytes = 48 << 10;
    REQUIRE(::setsockopt(own.get(), SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0);
  }
  void write(std::span<const std::byte> bytes) const {
    REQUIRE(::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(bytes.size()));
  }
  // Takes all that has come, and says how much that was.
  std::size_t drain() const {
    std::array<std::byte, 65536> scratch;
    std::size_t bytes = 0;
    for (;;) {
      const ssize_t count = ::recv(peer.get(), scratch.data(), scratch.size(), 0);
      if (count <= 0) return bytes;
      bytes += static_cast<std::size_t>(count);
    }
  }
  base::FileDescriptor own, peer;
};

// The receiver of a link of one connection, and what it tells.
struct SoleReceiver {
  SoleReceiver() { receiver.attach(0, wire.own.get(), {}); }

  const Wire wire;
  const std::unique_ptr<tcp::BorrowSlot> slot = std::make_unique<tcp::BorrowSlot>();
  tcp::FrameReceiver receiver{*slot};
  LearningSink sink;
  IdleLink link{1, transports::Lane::messages, &sink};
};

}  // namespace

TEST_CASE("a small payload that the socket takes in part may be changed at once") {
  const Wire wire;
  tcp::Sender sender(1);
  sender.attach(0, wire.own.get(), 0, {});
  LearningSink sink;
  IdleLink link{1, transports::Lane::bulk, &sink};
  const transports::HeaderBytes header = header_of(7);
  const transports::Blob payload = payload_of(7, transports::eager_bytes);
  transports::Blob lent = payload, wanted, came;
  auto how = transports::Send::done;
  while (how == transports::Send::done) {
    how = sender.send(header, lent);
    wanted.insert(wanted.end(), header.begin(), header.end());
    wanted.insert(wanted.end(), payload.begin(), payload.end());
  }
  REQUIRE(how == transports::Send::copied);
  std::ranges::fill(lent, std::byte{0});
  std::array<std::byte, 65536> scratch;
  while (came.size() < wanted.size()) {
    const ssize_t count = ::recv(wire.peer.get(), scratch.data(), scratch.size(), 0);
    if (count > 0) came.insert(came.end(), scratch.begin(), scratch.begin() + count);
    sender.flag_room(0);
    if (!sender.resume(link)) REQUIRE(count > 0);
  }
  CHECK(came == wanted);
}

TEST_CASE("a frame accepted by its header has work again when its rest has come") {
  SoleReceiver bench;
  auto& [wire, slot, receiver, sink, link] = bench;
  const transports::Blob payload = payload_of(7, 1000);
  sink.buffer.resize(payload.size());
  wire.write(header_of(7));
  wire.write(std::span(payload).first(500));
  receiver.flag_readable(0);
  REQUIRE(receiver.has_work());
  while (receiver.receive(link, false)) {
  }
  CHECK(sink.arrivals == 1);
  CHECK_FALSE(receiver.has_work());
  wire.write(std::span(payload).subspan(500));
  CHECK_FALSE(receiver.has_work());
  receiver.flag_readable(0);
  CHECK(receiver.has_work());
  CHECK(receiver.receive(link, false));
  CHECK(sink.frames == 1);
  CHECK(sink.buffer == payload);
  CHECK_FALSE(receiver.end());
}

TEST_CASE("small frames that came together are read at once, and wait behind one that is held") {
  SoleReceiver bench;
  tcp::FrameReceiver& receiver = bench.receiver;
  LearningSink& sink = bench.sink;
  IdleLink& link = bench.link;
  const transports::Blob payload = payload_of(7, 100);
  sink.buffer.resize(payload.size());
  const auto write_frames = [&](int frames) {
    for (int i = 0; i < frames; ++i) {
      bench.wire.write(header_of(7));
      bench.wire.write(payload);
    }
    receiver.flag_readable(0);
  };
  write_frames(3);
  CHECK(receiver.receive(link, false));
  CHECK(sink.frames == 3);
  CHECK_FALSE(receiver.has_work());
  sink.holds = true;
  write_frames(2);
  CHECK(receiver.receive(link, false));
  CHECK(sink.held);
  CHECK_FALSE(receiver.has_work());
  CHECK_FALSE(receiver.receive(link, true));
  sink.holds = false;
  CHECK(receiver.receive(link, true));
  CHECK(sink.frames == 5);
  CHECK(sink.buffer == payload);
  CHECK_FALSE(receiver.end());
}

TEST_CASE("a sink that accepts a frame and does not announce it ends a link of one connection") {
  SoleReceiver bench;
  auto& [wire, slot, receiver, sink, link] = bench;
  sink.announces = false;
  wire.write(header_of(7));
  receiver.flag_readable(0);
  CHECK(receiver.receive(link, false));
  REQUIRE(receiver.end());
  CHECK(receiver.end()->what == "a frame has been accepted and not announced");
  CHECK(receiver.end()->code == Errc::system);
}

TEST_CASE("a sink that accepts a frame and does not announce it ends a link of several paths") {
  const std::array<Wire, 2> wires;
  const auto slot = std::make_unique<tcp::BorrowSlot>();
  tcp::StripedReceiver receiver(*slot, wires.size());
  for (std::size_t path = 0; path < wires.size(); ++path)
    receiver.attach(path, wires[path].own.get(), {});
  LearningSink sink;
  IdleLink link{1, transports::Lane::messages, &sink};
  sink.announces = false;
  const std::size_t path = GENERATE(0, 1);
  wires[path].write(tcp::encode(tcp::Piece{0, 0, header_of(7)}));
  receiver.flag_readable(path);
  CHECK(receiver.receive(link, false));
  REQUIRE(receiver.end());
  CHECK(receiver.end()->what == "a frame has been accepted and not announced");
  CHECK(receiver.end()->path == path);
  CHECK(receiver.end()->code == Errc::system);
}

TEST_CASE("after a failure of one path nothing is written on the others") {
  std::array<Wire, 2> wires;
  tcp::Sender sender(wires.size());
  for (std::size_t path = 0; path < wires.size(); ++path)
    sender.attach(path, wires[path].own.get(), 0, {});
  LearningSink sink;
  IdleLink link{1, transports::Lane::messages, &sink};
  const transports::Blob payload(256 * tcp::piece_bytes);
  REQUIRE(sender.send(header_of(7), payload) == transports::Send::queued);
  CHECK(wires[0].drain() > 0);
  wires[1].peer.reset();
  // Before the failure, path 0 ends the piece that is under way there, or it does not.
  const bool ends_piece = GENERATE(true, false);
  if (ends_piece) sender.flag_room(0);
  sender.flag_room(1);
  CHECK(sender.has_work());
  CHECK(sender.resume(link) == ends_piece);
  REQUIRE(sender.failure());
  CHECK(sender.failure()->path == 1);
  wires[0].drain();
  sender.flag_room(0);
  CHECK_FALSE(sender.has_work());
  CHECK_FALSE(sender.resume(link));
  CHECK(wires[0].drain() == 0);
  CHECK(sender.send(header_of(8), {}) == transports::Send::full);
}

}  // namespace rondo::testing
