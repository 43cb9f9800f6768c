// SPDX-License-Identifier: Apache-2.0
//
// How connections are opened, and which are refused.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <thread>

#include <rondo/error.h>

#include "base/handshake.h"
#include "catch.h"
#include "conformance.h"
#include "support/effort.h"
#include "tcp_helpers.h"
#include "transports/connect/address.h"
#include "transports/connect/socket.h"

namespace rondo::testing {
namespace {

// A foreign client of this transport: a plain blocking socket.
base::FileDescriptor connect_to(transports::Transport& transport) {
  const auto address = connect::decode_address(transport.address());
  REQUIRE(address);
  const auto& endpoint = address->endpoints.front();
  base::FileDescriptor socket(
      ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(socket.get(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) == 0);
  return socket;
}

void write_all(const base::FileDescriptor& socket, std::span<const std::byte> bytes) {
  REQUIRE(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(bytes.size()));
}

transports::Blob first_bytes(std::span<const std::byte> bytes, std::size_t count) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)};
}

template <class Bytes>
Bytes read_exactly(const base::FileDescriptor& socket) {
  Bytes bytes{};
  REQUIRE(::recv(socket.get(), bytes.data(), bytes.size(), MSG_WAITALL) ==
          static_cast<ssize_t>(bytes.size()));
  return bytes;
}

// True when the other end closes within the limit.
bool closes_within(const base::FileDescriptor& socket, int milliseconds) {
  pollfd one{socket.get(), POLLIN, 0};
  if (::poll(&one, 1, milliseconds) != 1) return false;
  std::byte byte{};
  return ::recv(socket.get(), &byte, 1, 0) <= 0;
}

// Does the whole handshake of rank 1 of 2, for a client that then does what the test wants.
base::Verdict shake_hands(const base::FileDescriptor& socket, base::Claim claim,
                          std::string_view secret = "") {
  base::Initiator initiator(claim, 0, secret);
  write_all(socket, initiator.hello());
  write_all(socket, initiator.answer(read_exactly<base::ChallengeBytes>(socket)));
  return base::Initiator::read_verdict(read_exactly<base::VerdictBytes>(socket));
}

base::Claim honest_claim() {
  return {.purpose = base::Purpose::data, .rank = 1, .size = 2, .job = test_job, .lane = 0};
}

// Rank 0 of 2, started, with a rank 1 that exists only as an address.
Node lonely_node() {
  tcp::Options options;
  options.size = 2;
  options.host = "one host";
  auto transport = tcp::make_tcp(options);
  transport->start({transport->address(), transport->address()}, test_job);
  return Node(std::move(transport));
}

bool breaks_within(Node& node, int milliseconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (node.broken_links.empty() && std::chrono::steady_clock::now() < until) {
    node.turn();
    if (node.broken_links.empty() && node.transport().prepare_sleep()) {
      pollfd one{node.transport().wake_source().descriptor, POLLIN, 0};
      ::poll(&one, 1, 20);
    }
  }
  return !node.broken_links.empty();
}

void exchange(Group& group, std::uint64_t number) {
  group[0].send(1, transports::Lane::bulk, number, 1000);
  group[1].expect(0, transports::Lane::bulk, {number, 1000, true, 1});
  group.finish();
}

}  // namespace

TEST_CASE("all pairs open all links at the same moment") {
  constexpr int size = 12;
  for (int round = 0; round < 3; ++round) {
    Group group([](int ranks) { return tcp_transports(ranks); }, size);
    for (int a = 0; a < size; ++a)
      for (int b = 0; b < size; ++b)
        for (const transports::Lane lane : transports::link_lanes)
          if (a != b) {
            group[a].send(b, lane, 7, 100);
            group[b].expect(a, lane, {7, 100, true, 1});
          }
    group.finish();
  }
}

TEST_CASE("two ranks on two threads open the same link at the same moment, again and again") {
  const auto enough = std::chrono::steady_clock::now() + std::chrono::seconds(whole_set() ? 20 : 2);
  for (int round = 0; round < 20 || (round < 200 && std::chrono::steady_clock::now() < enough);
       ++round) {
    auto transports = tcp_transports(2);
    Node nodes[] = {Node(std::move(transports[0])), Node(std::move(transports[1]))};
    std::atomic<int> ready{0}, done{0};
    const auto run = [&](int rank) {
      Node& node = nodes[rank];
      node.send(1 - rank, transports::Lane::urgent, 3, 70);
      node.expect(1 - rank, transports::Lane::urgent, {3, 70, false, 7});
      ready.fetch_add(1);
      while (ready.load() < 2) std::this_thread::yield();
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      // Runs until both are done, because the other end may still need this one.
      bool counted = false;
      while (done.load() < 2 && std::chrono::steady_clock::now() < until) {
        if (!node.turn()) std::this_thread::yield();
        if (node.idle() && !std::exchange(counted, true)) done.fetch_add(1);
      }
    };
    std::thread other(run, 1);
    run(0);
    other.join();
    for (const Node& node : nodes) {
      CHECK(node.idle());
      CHECK(node.broken_links.empty());
      CHECK(node.problems.empty());
    }
  }
}

TEST_CASE("a link that only one end opens serves both") {
  for (const int opener : {0, 1}) {
    Group group([](int ranks) { return tcp_transports(ranks); }, 2);
    group[opener].send(1 - opener, transports::Lane::bulk, 1, 10);
    group[1 - opener].expect(opener, transports::Lane::bulk, {1, 10, true, 1});
    group.finish();
    group[1 - opener].send(opener, transports::Lane::bulk, 2, 10);
    group[opener].expect(1 - opener, transports::Lane::bulk, {2, 10, true, 1});
    group.finish();
    CHECK(group[0].transport().link(1, transports::Lane::bulk).describe() ==
          group[1].transport().identity().text);
    CHECK(group[1].transport().link(0, transports::Lane::bulk).describe() ==
          group[0].transport().identity().text);
  }
}

TEST_CASE("foreign clients do no harm") {
  Group group([](int ranks) { return tcp_transports(ranks); }, 2);
  transports::Transport& victim = group[1].transport();
  std::vector<base::FileDescriptor> clients;
  const transports::Blob noise = payload_of(99, 100'000);
  for (int i = 0; i < 20; ++i) {
    clients.push_back(connect_to(victim));
    const std::size_t bytes = static_cast<std::size_t>(i) * 31;
    if (bytes > 0) (void)!::send(clients.back().get(), noise.data(), bytes, MSG_NOSIGNAL);
    if (i % 3 == 0) clients.pop_back();
  }
  base::FileDescriptor loud = connect_to(victim);
  (void)!::send(loud.get(), noise.data(), noise.size(), MSG_NOSIGNAL);
  CHECK(closes_within(loud, 5000));
  exchange(group, 1);
  // Beyond the bound, the oldest connection that has proved nothing is dropped.
  for (int i = 0; i < 200; ++i) clients.push_back(connect_to(victim));
  CHECK(closes_within(clients.front(), 5000));
  exchange(group, 2);
}

TEST_CASE("a handshake that does not go on is ended") {
  Node node = lonely_node();
  const base::FileDescriptor client = connect_to(node.transport());
  const auto begin = std::chrono::steady_clock::now();
  write_all(client, base::Initiator(honest_claim(), 0, "").hello());
  (void)read_exactly<base::ChallengeBytes>(client);
  CHECK(closes_within(client, 15'000));
  CHECK(std::chrono::steady_clock::now() - begin > std::chrono::seconds(4));
}

TEST_CASE("claims are checked") {
  Node node = lonely_node();
  const auto verdict = [&](auto edit) {
    base::Claim claim = honest_claim();
    edit(claim);
    const base::FileDescriptor client = connect_to(node.transport());
    return shake_hands(client, claim);
  };
  CHECK(verdict([](base::Claim& c) { c.job ^= 1; }) == base::Verdict::wrong_job);
  CHECK(verdict([](base::Claim& c) { c.purpose = base::Purpose::rendezvous; }) ==
        base::Verdict::wrong_job);
  CHECK(verdict([](base::Claim& c) { c.size = 3; }) == base::Verdict::bad_size);
  CHECK(verdict([](base::Claim& c) { c.rank = 0; }) == base::Verdict::bad_rank);
  CHECK(verdict([](base::Claim& c) { c.rank = 2; }) == base::Verdict::bad_rank);
  CHECK(verdict([](base::Claim& c) { c.rank = 0xffffffffu; }) == base::Verdict::bad_rank);
  CHECK(verdict([](base::Claim& c) { c.lane = 3; }) == base::Verdict::duplicate_link);
  CHECK(verdict([](base::Claim& c) { c.lane = 0xffffffffu; }) == base::Verdict::duplicate_link);
  const base::FileDescriptor first = connect_to(node.transport());
  CHECK(shake_hands(first, honest_claim()) == base::Verdict::welcome);
  CHECK(verdict([](base::Claim&) {}) == base::Verdict::duplicate_link);
}

TEST_CASE("a peer that goes is noticed, and how it went is told") {
  Node node = lonely_node();
  base::FileDescriptor client = connect_to(node.transport());
  REQUIRE(shake_hands(client, honest_claim()) == base::Verdict::welcome);
  SECTION("at the end of a frame") {
    ::shutdown(client.get(), SHUT_WR);
    REQUIRE(breaks_within(node, 5000));
    CHECK(node.broken_links[0].clean);
  }
  SECTION("within a header") {
    write_all(client, first_bytes(header_of(1), 30));
    ::shutdown(client.get(), SHUT_WR);
    REQUIRE(breaks_within(node, 5000));
    CHECK_FALSE(node.broken_links[0].clean);
    CHECK(node.broken_links[0].what == "the peer closed the connection in the middle of a frame");
  }
  SECTION("within a payload") {
    node.expect(1, transports::Lane::bulk, {1, 1000, false, 8});
    write_all(client, header_of(1));
    write_all(client, first_bytes(payload_of(1, 1000), 500));
    ::shutdown(client.get(), SHUT_WR);
    REQUIRE(breaks_within(node, 5000));
    CHECK_FALSE(node.broken_links[0].clean);
  }
  SECTION("with a reset") {
    const linger at_once{1, 0};
    ::setsockopt(client.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    client.reset();
    REQUIRE(breaks_within(node, 5000));
    CHECK_FALSE(node.broken_links[0].clean);
    CHECK(node.broken_links[0].code == Errc::peer_lost);
    CHECK(node.broken_links[0].what == "connection reset by peer");
  }
  CHECK(node.problems.empty());
}

TEST_CASE("ranks with different secrets say so") {
  const auto transports = [](int size) {
    return tcp_transports(size, [](tcp::Options& options) {
      options.secret.assign(1, static_cast<char>('a' + options.rank));
      options.interfaces = {"lo"};
    });
  };
  Group group(transports, 2);
  group[0].send(1, transports::Lane::bulk, 1, 10);
  REQUIRE(group.run_until([&] { return !group[0].broken_links.empty(); }));
  const auto& broken = group[0].broken_links[0];
  CHECK(broken.code == Errc::authentication);
  CHECK(broken.what.find("RONDO_SECRET") != std::string::npos);
  CHECK(broken.what.find("cannot connect to rank 1 at 127.0.0.1:") == 0);
}

TEST_CASE("with the same secret ranks meet") {
  Group group(
      [](int size) {
        return tcp_transports(size, [](tcp::Options& options) { options.secret = "one for all"; });
      },
      2);
  exchange(group, 1);
}

TEST_CASE("ranks of another job are told") {
  std::vector<std::unique_ptr<transports::Transport>> transports;
  std::vector<transports::Blob> addresses;
  for (int rank = 0; rank < 2; ++rank) {
    tcp::Options options;
    options.rank = rank;
    options.size = 2;
    options.host = "h";
    transports.push_back(tcp::make_tcp(options));
    addresses.push_back(transports.back()->address());
  }
  transports[0]->start(addresses, 1);
  transports[1]->start(addresses, 2);
  Node node(std::move(transports[0]));
  node.send(1, transports::Lane::urgent, 1, 10);
  REQUIRE(breaks_within(node, 10'000));
  CHECK(node.broken_links[0].what.find("another job") != std::string::npos);
}

TEST_CASE("a rank that is gone is reported with its address") {
  auto transports = tcp_transports(2);
  const std::string where = transports[1]->identity().text;
  transports[1].reset();
  Node node(std::move(transports[0]));
  node.send(1, transports::Lane::bulk, 1, 10);
  REQUIRE(breaks_within(node, 10'000));
  CHECK(node.broken_links[0].code == Errc::peer_lost);
  CHECK(node.broken_links[0].what ==
        "cannot connect to rank 1 at " + where + ": connection refused");
}

TEST_CASE("a rank that never answers is given up at the deadline") {
  // It listens and does nothing else.
  base::FileDescriptor silent =
      connect::listen_at(boost::asio::ip::make_address("127.0.0.1"), 0, 0, 0, 8);
  tcp::Options options;
  options.size = 2;
  options.host = "h";
  options.connect_deadline = std::chrono::milliseconds(300);
  auto transport = tcp::make_tcp(options);
  transport->start(
      {transport->address(), connect::encode({"h", {connect::local_endpoint(silent.get())}})}, 1);
  Node node(std::move(transport));
  node.send(1, transports::Lane::bulk, 1, 10);
  REQUIRE(breaks_within(node, 10'000));
  CHECK(node.broken_links[0].code == Errc::deadline_exceeded);
  CHECK(node.broken_links[0].what.find("no answer within 300 ms") != std::string::npos);
}

// Without class Keepalive, the kernel's TCP_USER_TIMEOUT would end this connection.
TEST_CASE("a peer that takes nothing for longer than the timeout, but lives, is not lost") {
  Group group(
      [](int size) {
        return tcp_transports(
            size, [](tcp::Options& o) { o.peer_timeout = std::chrono::milliseconds(400); });
      },
      2);
  const std::size_t bytes = std::size_t{48} << 20;
  group[0].send(1, transports::Lane::bulk, 1, bytes);
  REQUIRE(group.run_until([&] { return group[1].held == 1; }));
  CHECK_FALSE(group.run_until([&] { return !group[0].broken_links.empty(); },
                              std::chrono::milliseconds(3000)));
  group[1].expect(0, transports::Lane::bulk, {1, bytes, true, 1});
  group.finish();
}

}  // namespace rondo::testing
