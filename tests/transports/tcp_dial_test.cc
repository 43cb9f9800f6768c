// SPDX-License-Identifier: Apache-2.0
//
// A peer with several endpoints, of which only one is really the peer's.
#include <poll.h>

#include <chrono>

#include <rondo/error.h>

#include "catch.h"
#include "conformance.h"
#include "tcp_helpers.h"
#include "transports/connect/address.h"
#include "transports/connect/socket.h"

namespace rondo::testing {
namespace {

boost::asio::ip::tcp::endpoint endpoint_of(const transports::Transport& transport) {
  return connect::decode_address(transport.address())->endpoints.front();
}

tcp::Options options_of(int rank, std::chrono::milliseconds limit) {
  tcp::Options options;
  options.rank = rank;
  options.size = 3;
  options.host = "one host";
  options.connect_deadline = limit;
  return options;
}

// Ranks 0 and 1. Rank 0 believes that rank 1 listens at the endpoints in `before` and, last, at its
// real one.
Group group_with(std::vector<boost::asio::ip::tcp::endpoint> before,
                 std::chrono::milliseconds limit) {
  return Group(
      [&](int) {
        std::vector<std::unique_ptr<transports::Transport>> ranks;
        for (int rank = 0; rank < 2; ++rank)
          ranks.push_back(tcp::make_tcp(options_of(rank, limit)));
        before.push_back(endpoint_of(*ranks[1]));
        const transports::Blob own = ranks[0]->address(),
                               peer = connect::encode({"one host", before});
        for (auto& rank : ranks) rank->start({own, peer, {}}, test_job);
        return ranks;
      },
      2);
}

void exchange(Group& group) {
  group[0].send(1, transports::Lane::bulk, 1, 1000);
  group[1].expect(0, transports::Lane::bulk, {1, 1000, true, 1});
  group.finish();
}

}  // namespace

TEST_CASE("another rank, or nothing of Rondo, at the first endpoint does not end the dial") {
  const auto limit = std::chrono::milliseconds(20'000);
  const auto other = tcp::make_tcp(options_of(2, limit));
  other->start({{}, {}, other->address()}, test_job);
  const auto foreign = tcp::make_tcp(options_of(1, limit));
  foreign->start({{}, foreign->address(), {}}, test_job + 1);
  Group group = group_with({endpoint_of(*other), endpoint_of(*foreign)}, limit);
  exchange(group);
}

TEST_CASE("a rank does not fall asleep over a connection that has just opened") {
  const auto limit = std::chrono::milliseconds(20'000);
  Group group = group_with({}, limit);
  group[0].send(1, transports::Lane::bulk, 1, 1000);
  group[1].expect(0, transports::Lane::bulk, {1, 1000, true, 1});
  group[0].turn();
  transports::Transport& dialled = group[1].transport();
  pollfd news{dialled.wake_source().descriptor, POLLIN, 0};
  do REQUIRE(::poll(&news, 1, 20'000) == 1);
  while (dialled.prepare_sleep());
  group.finish();
}

TEST_CASE("when all endpoints turn a rank away the first answer is told") {
  const auto limit = std::chrono::milliseconds(20'000);
  const auto first = tcp::make_tcp(options_of(2, limit)),
             second = tcp::make_tcp(options_of(1, limit));
  first->start({{}, {}, first->address()}, test_job);
  second->start({{}, second->address(), {}}, test_job + 1);
  auto rank0 = tcp::make_tcp(options_of(0, limit));
  rank0->start({rank0->address(),
                connect::encode({"one host", {endpoint_of(*first), endpoint_of(*second)}}),
                {}},
               test_job);
  Node node(std::move(rank0));
  node.send(1, transports::Lane::bulk, 1, 10);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (node.broken_links.empty() && std::chrono::steady_clock::now() < until) {
    node.turn();
    pollfd one{node.transport().wake_source().descriptor, POLLIN, 0};
    if (node.broken_links.empty() && node.transport().prepare_sleep()) ::poll(&one, 1, 20);
  }
  REQUIRE(node.broken_links.size() == 1);
  CHECK(node.broken_links[0].code == Errc::rendezvous);
  CHECK_THAT(node.broken_links[0].what, Catch::Contains(connect::to_text(endpoint_of(*first))));
}

TEST_CASE("an endpoint that accepts and says nothing does not eat the whole deadline") {
  const base::FileDescriptor silent =
      connect::listen_at(boost::asio::ip::make_address("127.0.0.1"), 0, 0, 0, 8);
  Group group =
      group_with({connect::local_endpoint(silent.get())}, std::chrono::milliseconds(30'000));
  exchange(group);
}

}  // namespace rondo::testing
