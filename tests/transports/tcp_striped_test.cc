// SPDX-License-Identifier: Apache-2.0
//
// A link of two paths, with a peer that the test plays piece by piece: damaged, slow on one path,
// gone on one path.
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <thread>

#include <rondo/error.h>

#include "base/file_descriptor.h"
#include "base/handshake.h"
#include "catch.h"
#include "conformance.h"
#include "tcp_helpers.h"
#include "transports/connect/address.h"
#include "transports/tcp/piece.h"

namespace rondo::testing {
namespace {

using Clock = std::chrono::steady_clock;

base::Claim claim_of(std::uint32_t connection, std::uint32_t lane = 0) {
  return {.purpose = base::Purpose::data,
          .rank = 1,
          .size = 2,
          .job = test_job,
          .lane = lane,
          .connection = connection};
}

void send_all(const base::FileDescriptor& socket, std::span<const std::byte> bytes) {
  REQUIRE(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(bytes.size()));
}

template <class Bytes>
Bytes receive_exactly(const base::FileDescriptor& socket) {
  Bytes bytes{};
  REQUIRE(::recv(socket.get(), bytes.data(), bytes.size(), MSG_WAITALL) ==
          static_cast<ssize_t>(bytes.size()));
  return bytes;
}

// Rank 0 of 2, which wants two paths, and the two sockets of a rank 1 that the test plays.
struct PlayedPeer {
  PlayedPeer() : node(make()) {
    for (std::uint32_t i = 0; i < 2; ++i) {
      sockets[i] = dial();
      REQUIRE(shake(sockets[i], claim_of(i)) == base::Verdict::welcome);
    }
  }

  Node make() {
    tcp::Options options;
    options.size = 2;
    options.host = "one host";
    options.connections = 2;
    auto transport = tcp::make_tcp(options);
    const transports::Blob address = transport->address();
    transport->start({address, address}, test_job);
    endpoint = connect::decode_address(address)->endpoints.front();
    return Node(std::move(transport));
  }

  base::FileDescriptor dial() const {
    base::FileDescriptor socket(
        ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    // A fixed buffer. The kernel may let one that it sizes itself grow to megabytes, and they would
    // hide that a path is not read.
    const int bytes = 2 * tcp::piece_bytes;
    REQUIRE(::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) == 0);
    REQUIRE(::connect(socket.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) == 0);
    return socket;
  }

  static base::Verdict shake(const base::FileDescriptor& socket, const base::Claim& claim) {
    base::Initiator initiator(claim, 0, "");
    send_all(socket, initiator.hello());
    send_all(socket, initiator.answer(receive_exactly<base::ChallengeBytes>(socket)));
    return base::Initiator::read_verdict(receive_exactly<base::VerdictBytes>(socket));
  }

  // Sends piece `index` of frame `number`, as the frame `sequence` of the link.
  void piece(std::size_t path, std::uint64_t sequence, std::uint32_t index, std::uint64_t number,
             std::size_t bytes) {
    const transports::Blob payload = payload_of(number, bytes);
    const tcp::PiecePlace place = tcp::place_of(index, bytes);
    const auto head = tcp::encode(tcp::Piece{sequence, index, header_of(number)});
    transports::Blob whole(head.begin(), head.end());
    const auto part = std::span(payload).subspan(place.offset, place.bytes);
    whole.insert(whole.end(), part.begin(), part.end());
    send_all(sockets[path], whole);
  }

  template <class Done>
  bool until(Done done, int milliseconds = 10'000) {
    const auto limit = Clock::now() + std::chrono::milliseconds(milliseconds);
    while (!done() && Clock::now() < limit) {
      if (node.turn() || !node.transport().prepare_sleep()) continue;
      pollfd one{node.transport().wake_source().descriptor, POLLIN, 0};
      ::poll(&one, 1, 20);
    }
    return done();
  }
  bool breaks() {
    return until([&] { return !node.broken_links.empty(); });
  }
  const std::string& what() const { return node.broken_links.at(0).what; }

  boost::asio::ip::tcp::endpoint endpoint;
  Node node;
  std::array<base::FileDescriptor, 2> sockets;
};

}  // namespace

TEST_CASE("pieces come in any order on several paths") {
  PlayedPeer played;
  const std::size_t bytes = 2 * tcp::piece_bytes + 1000;
  const bool placed = GENERATE(true, false);
  played.node.expect(1, transports::Lane::bulk, {7, bytes, placed, 8});
  played.node.expect(1, transports::Lane::bulk, {8, 16, true, 8});
  // Path 1 brings the last two pieces and then the next frame. The first piece comes later, on path
  // 0.
  played.piece(1, 0, 1, 7, bytes);
  played.piece(1, 0, 2, 7, bytes);
  played.piece(1, 1, 0, 8, 16);
  CHECK_FALSE(played.until([&] { return played.node.frames > 0; }, 50));
  played.piece(0, 0, 0, 7, bytes);
  CHECK(played.until([&] { return played.node.frames == 2; }));
  CHECK(played.node.problems.empty());
}

TEST_CASE("a later frame waits in its socket, and its header is not shown") {
  PlayedPeer played;
  played.piece(1, 1, 0, 8, 100);
  CHECK_FALSE(played.until([&] { return played.node.held > 0; }, 50));
  played.piece(0, 0, 0, 7, 100);
  CHECK(played.until([&] { return played.node.held == 1; }));
  played.node.expect(1, transports::Lane::bulk, {7, 100, true});
  played.node.expect(1, transports::Lane::bulk, {8, 100, false});
  CHECK(played.until([&] { return played.node.frames == 2; }));
  CHECK(played.node.problems.empty());
}

TEST_CASE("damaged pieces end the link") {
  PlayedPeer played;
  const std::size_t bytes = 3 * tcp::piece_bytes;
  played.node.expect(1, transports::Lane::bulk, {7, bytes, true});
  std::string wanted;
  played.piece(0, 0, 1, 7, bytes);
  SECTION("no piece") {
    send_all(played.sockets[1], tcp::PiecePrefix{});
    wanted = "it is no piece of a frame";
  }
  SECTION("twice") {
    played.piece(1, 0, 1, 7, bytes);
    wanted = "it has come before";
  }
  SECTION("behind the end") {
    send_all(played.sockets[1], tcp::encode(tcp::Piece{0, 3, header_of(7)}));
    wanted = "it lies behind the end of its frame";
  }
  SECTION("far behind the end") {
    send_all(played.sockets[1], tcp::encode(tcp::Piece{0, 0xffffffffu, header_of(7)}));
    wanted = "it lies behind the end of its frame";
  }
  SECTION("of another frame") {
    send_all(played.sockets[1], tcp::encode(tcp::Piece{0, 2, header_of(8)}));
    wanted = "the pieces of one frame have different headers";
  }
  SECTION("of a frame that cannot be") {
    send_all(played.sockets[1], tcp::encode(tcp::Piece{~std::uint64_t{0}, 0, header_of(7)}));
    wanted = "it belongs to a frame that cannot be under way";
  }
  REQUIRE(played.breaks());
  CHECK(played.what() ==
        "path 2 of 2, 127.0.0.1 -> 127.0.0.1 (lo): a piece of a frame is damaged: " + wanted);
  CHECK_FALSE(played.node.broken_links[0].clean);
  CHECK(played.node.frames == 0);
}

TEST_CASE("a path is broken: it is named") {
  PlayedPeer played;
  const std::size_t bytes = 3 * tcp::piece_bytes;
  played.node.expect(1, transports::Lane::bulk, {7, bytes, false, 8});
  played.piece(0, 0, 0, 7, bytes);
  // Runs until both paths are in use.
  CHECK_FALSE(played.until([&] { return !played.node.broken_links.empty(); }, 100));
  SECTION("reset") {
    const linger at_once{1, 0};
    ::setsockopt(played.sockets[1].get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    played.sockets[1].reset();
    REQUIRE(played.breaks());
    CHECK(played.what() == "path 2 of 2, 127.0.0.1 -> 127.0.0.1 (lo): connection reset by peer");
  }
  SECTION("closed within a piece") {
    send_all(played.sockets[1], tcp::encode(tcp::Piece{0, 1, header_of(7)}));
    played.sockets[1].reset();
    REQUIRE(played.breaks());
    CHECK(played.what() ==
          "path 2 of 2, 127.0.0.1 -> 127.0.0.1 (lo): "
          "the peer closed the connection in the middle of a frame");
  }
  SECTION("closed between two pieces, or behind bytes that wait for others") {
    const int behind = GENERATE(0, 1, 2);
    if (behind == 1) played.piece(1, 0, 2, 7, bytes);
    if (behind == 2) played.piece(1, 1, 0, 8, 16);
    played.sockets[1].reset();
    REQUIRE(played.breaks());
    CHECK(played.what() ==
          "path 2 of 2, 127.0.0.1 -> 127.0.0.1 (lo): the peer closed this connection alone");
  }
  REQUIRE(played.node.broken_links.size() == 1);
  CHECK_FALSE(played.node.broken_links[0].clean);
  CHECK(played.node.broken_links[0].code == Errc::peer_lost);
}

TEST_CASE("what a peer said before it left is heard, however its paths end") {
  PlayedPeer played;
  const std::size_t bytes = 2 * tcp::piece_bytes;
  played.node.expect(1, transports::Lane::bulk, {7, bytes, true});
  played.piece(0, 0, 0, 7, bytes);
  played.sockets[0].reset();
  // The other path has not brought its piece yet.
  CHECK_FALSE(played.until([&] { return played.node.frames > 0; }, 100));
  CHECK(played.node.broken_links.empty());
  played.piece(1, 0, 1, 7, bytes);
  played.sockets[1].reset();
  REQUIRE(played.breaks());
  CHECK(played.node.frames == 1);
  CHECK(played.node.broken_links[0].clean);
  CHECK(played.what() == "the peer closed the connection");
}

TEST_CASE("while nothing is awaited, a path may end long before the others") {
  PlayedPeer played;
  played.piece(1, 1, 0, 8, 16);
  played.sockets[1].reset();
  CHECK_FALSE(played.until([&] { return !played.node.broken_links.empty(); }, 1'000));
  played.piece(0, 0, 0, 7, 16);
  played.sockets[0].reset();
  played.node.expect(1, transports::Lane::bulk, {7, 16, true});
  played.node.expect(1, transports::Lane::bulk, {8, 16, true});
  REQUIRE(played.breaks());
  CHECK(played.node.frames == 2);
  CHECK(played.node.broken_links[0].clean);
}

TEST_CASE("what came while nobody drove the link is heard before a path is taken for lost") {
  PlayedPeer played;
  const auto away = [] { std::this_thread::sleep_for(std::chrono::milliseconds(700)); };
  played.node.expect(1, transports::Lane::bulk, {7, 16, true});
  int frames = 2;
  std::size_t first = 1;  // the path that ends first
  SECTION("it waited for the end of a path") {
    first = GENERATE(0u, 1u);
    if (GENERATE(true, false)) {
      played.piece(first, 1, 0, 8, 16);
      played.node.expect(1, transports::Lane::bulk, {8, 16, true});
    } else {
      frames = 1;
    }
    played.sockets[first].reset();
    CHECK_FALSE(played.until([&] { return !played.node.broken_links.empty(); }, 100));
    played.piece(1 - first, 0, 0, 7, 16);
    if (GENERATE(true, false)) played.sockets[1 - first].reset();
    away();
  }
  SECTION("it had just received what it waited for") {
    played.piece(1, 1, 0, 8, 16);
    played.sockets[1].reset();
    played.piece(0, 0, 0, 7, 16);
    (void)played.node.transport().prepare_sleep();
    REQUIRE(played.until([&] { return played.node.frames == 1; }));
    away();
    CHECK_FALSE(played.until([&] { return !played.node.broken_links.empty(); }, 50));
    played.node.expect(1, transports::Lane::bulk, {8, 16, true});
  }
  CHECK(played.until([&] { return played.node.frames == frames; }));
  played.sockets[1 - first].reset();
  REQUIRE(played.breaks());
  CHECK(played.node.frames == frames);
  CHECK(played.node.broken_links[0].clean);
}

TEST_CASE("a connection that has no place in the link is refused") {
  PlayedPeer played;
  for (const auto& claim :
       {claim_of(0), claim_of(1), claim_of(2), claim_of(0xffffffffu), claim_of(1, 1)})
    CHECK(PlayedPeer::shake(played.dial(), claim) == base::Verdict::duplicate_link);
  CHECK(PlayedPeer::shake(played.dial(), claim_of(0, 1)) == base::Verdict::welcome);
}

TEST_CASE("a peer that goes before all paths are there is noticed") {
  PlayedPeer played;
  base::FileDescriptor half = played.dial();
  const auto lane = static_cast<std::uint32_t>(transports::Lane::messages);
  REQUIRE(PlayedPeer::shake(half, claim_of(0, lane)) == base::Verdict::welcome);
  CHECK_FALSE(played.until([&] { return !played.node.broken_links.empty(); }, 50));
  half.reset();
  REQUIRE(played.breaks());
  CHECK(played.node.broken_links[0].lane == transports::Lane::messages);
}

TEST_CASE("a slow path gets fewer pieces") {
  PlayedPeer played;
  const std::size_t bytes = 256 * tcp::piece_bytes;
  played.node.send(1, transports::Lane::bulk, 9, bytes);
  std::array<transports::Blob, 2> streams;
  const auto read_some = [&](std::size_t path, std::size_t most) {
    std::array<std::byte, 65536> buffer;
    const ssize_t count = ::recv(played.sockets[path].get(), buffer.data(),
                                 std::min(most, buffer.size()), MSG_DONTWAIT);
    if (count > 0)
      streams[path].insert(streams[path].end(), buffer.begin(), buffer.begin() + count);
  };
  const std::size_t all = bytes + 256 * tcp::piece_prefix_bytes;
  const auto limit = Clock::now() + std::chrono::seconds(30);
  while (streams[0].size() + streams[1].size() < all && Clock::now() < limit) {
    played.node.turn();
    read_some(0, 65536);
    // Path 1 has an eighth of the speed of path 0, however fast that is. In the end only what its
    // buffers hold is left.
    const std::size_t left = all - streams[0].size() - streams[1].size();
    if (streams[1].size() * 8 <= streams[0].size() || left < 8 * tcp::piece_bytes)
      read_some(1, 8192);
  }
  REQUIRE(streams[0].size() + streams[1].size() == all);
  CHECK(streams[1].size() * 2 < streams[0].size());
  CHECK(streams[1].size() > tcp::piece_bytes);
  transports::Blob whole(bytes);
  for (const transports::Blob& stream : streams)
    for (std::size_t at = 0; at < stream.size();) {
      const auto piece = tcp::decode_piece(std::span<const std::byte, tcp::piece_prefix_bytes>(
          stream.data() + at, tcp::piece_prefix_bytes));
      REQUIRE(piece);
      CHECK((piece->sequence == 0 && piece->header == header_of(9)));
      at += tcp::piece_prefix_bytes;
      std::copy_n(stream.data() + at, tcp::piece_bytes,
                  whole.data() + piece->index * tcp::piece_bytes);
      at += tcp::piece_bytes;
    }
  CHECK(whole == payload_of(9, bytes));
}

TEST_CASE("without descriptors left the paths come once there are some") {
  Group group(
      [](int size) {
        return tcp_transports(size, [](tcp::Options& options) { options.connections = 4; });
      },
      2);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const base::FileDescriptor lowest(::dup(0));
  const rlimit none{static_cast<rlim_t>(lowest.get()) + 3, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  group[0].send(1, transports::Lane::bulk, 1, 300'000);
  group[1].expect(0, transports::Lane::bulk, {1, 300'000, true});
  const bool early =
      group.run_until([&] { return group[1].frames == 1; }, std::chrono::milliseconds(200));
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK_FALSE(early);
  group.finish();
}

}  // namespace rondo::testing
