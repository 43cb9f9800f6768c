// SPDX-License-Identifier: Apache-2.0
//
// Peers that misbehave: without the secret, with garbage, or too slow. Also large and odd jobs.
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <random>

#include "group.h"

using namespace rondo;
using boost::asio::ip::tcp;

namespace {

// Opens 20 connections to a data port. The first sends nothing, the others random noise.
std::vector<tcp::socket> disturb(boost::asio::io_context& context, const std::string& address,
                                 std::mt19937_64& random) {
  std::vector<tcp::socket> sockets;
  const auto colon = address.rfind(':');
  tcp::resolver resolver(context);
  const auto endpoints = resolver.resolve(address.substr(0, colon), address.substr(colon + 1));
  for (int i = 0; i < 20; ++i) {
    tcp::socket& socket = sockets.emplace_back(context);
    boost::asio::connect(socket, endpoints);
    std::vector<std::uint64_t> noise(i * 100);
    for (auto& word : noise) word = random();
    boost::system::error_code ignored;  // the rank may close it meanwhile
    boost::asio::write(socket, boost::asio::buffer(noise), ignored);
  }
  return sockets;
}

}  // namespace

TEST_CASE("a foreign client that sends garbage disturbs nobody") {
  std::mt19937_64 random(7);
  Group group(3);
  group.start_all({"run", "run", "run"}, 300, 0, 100'000);
  boost::asio::io_context context;
  std::vector<std::vector<tcp::socket>> strangers;
  for (const std::string& address : group.addresses)
    strangers.push_back(disturb(context, address, random));
  for (int rank = 0; rank < 3; ++rank) {
    const Ending ending = group.ending(rank);
    INFO("rank " << rank << ": " << ending.code << " " << ending.message);
    CHECK(ending.code == "ok");
  }
}

TEST_CASE(
    "a rank with a wrong secret is refused at once, and the others say so at their deadline") {
  Group group(3);
  for (int rank = 0; rank < 3; ++rank) group.overrides[rank]["RONDO_CONNECT_DEADLINE"] = "2";
  group.overrides[2]["RONDO_SECRET"] = "another secret";
  for (int rank = 0; rank < 3; ++rank) group.start(rank, "run", 5, 0, 1000);
  const Ending refused = group.ending(2);
  INFO("rank 2: " << refused.code << " " << refused.message);
  CHECK(refused.code == "authentication");
  CHECK(contains(refused.message, "RONDO_SECRET"));
  for (const int rank : {0, 1}) {
    const Ending ending = group.ending(rank);
    INFO("rank " << rank << ": " << ending.code << " " << ending.message);
    CHECK((ending.code == "rendezvous" || ending.code == "deadline_exceeded"));
    CHECK(contains(ending.message, "rank 2"));
    CHECK(contains(ending.message, "secret"));
  }
}

TEST_CASE("a rank that drips one byte a second trips the deadline of the whole operation") {
  Group group(3, "2");
  group.start_all({"run", "run", "drip"}, 5, 0, 1000);
  for (const int rank : {0, 1}) {
    const Ending ending = group.ending(rank);
    INFO("rank " << rank << ": " << ending.code << " " << ending.message);
    CHECK(ending.code == "deadline_exceeded");
    CHECK(contains(ending.message, "all_reduce #1"));
    CHECK(contains(ending.message, "rank 2"));
  }
}

TEST_CASE("more ranks than anybody has cores") {
  const std::string transport = GENERATE(from_range(drawn_of<std::string>({"tcp", "shm"})));
  INFO(transport);
  const int size = 64;
  Group group(size, "120");
  group.transport = transport;
  group.start_all(std::vector<std::string>(size, "run"), 10, 0, 10'007);
  for (int rank = 0; rank < size; ++rank)
    CHECK(group.ending(rank, base::Clock::now() + std::chrono::seconds{120}).code == "ok");
}

TEST_CASE("a buffer of more bytes than 32 bits can count") {
  // It takes 20 s of processor time. With a sanitizer the buffer is smaller.
  if (!RONDO_SANITIZED && !testing::whole_set()) return;
  Group group(2, "200");
  group.start_all({"bytes", "bytes"}, 1, 0, RONDO_LARGE_COUNT);
  for (int rank = 0; rank < 2; ++rank) {
    const Ending ending = group.ending(rank, base::Clock::now() + std::chrono::seconds{200});
    INFO("rank " << rank << ": " << ending.code << " " << ending.message);
    CHECK(ending.code == "wrong 0");
  }
}

TEST_CASE("odd counts and ranks") {
  const std::string transport = GENERATE(as<std::string>{}, "tcp", "shm");
  INFO(transport);
  const std::size_t count = GENERATE(from_range(drawn_of<std::size_t>({10'007, 0, 1})));
  Group group(7);
  group.transport = transport;
  group.start_all(std::vector<std::string>(7, "run"), 10, 0, count);
  for (int rank = 0; rank < 7; ++rank) CHECK(group.ending(rank).code == "ok");
}
