// SPDX-License-Identifier: Apache-2.0
//
// Where a rank listens, and how it judges other ranks' addresses.
#include "transports/connect/address.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>

#include <rondo/error.h>

#include "catch.h"
#include "conformance.h"
#include "skip.h"
#include "tcp_helpers.h"
#include "transports/connect/interfaces.h"
#include "transports/connect/socket.h"

namespace rondo::testing {
namespace {

namespace ip = boost::asio::ip;

ip::tcp::endpoint endpoint(const std::string& address, std::uint16_t port) {
  return {ip::make_address(address), port};
}

std::string message_of(const tcp::Options& options) {
  try {
    (void)tcp::make_tcp(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

const std::vector<connect::LocalAddress> machine{
    {"lo", ip::make_address("127.0.0.1"), 8, true},
    {"lo", ip::make_address("::1"), 128, true},
    {"eth0", ip::make_address("10.0.0.7"), 24, false},
    {"eth0", ip::make_address("fd00::7"), 64, false},
    {"eth0", ip::make_address("fe80::7"), 64, false},
    {"eth1", ip::make_address("192.168.1.7"), 16, false},
    {"docker0", ip::make_address("172.17.0.1"), 16, false},
};

std::string chosen(const std::vector<std::string>& filters) {
  const connect::InterfaceFilter filter(filters, machine);
  std::string text;
  for (const connect::LocalAddress& one : machine)
    if (filter.refusal(one).empty()) text += one.address.to_string() + " ";
  return text;
}

bool has_ipv6_loopback() {
  return std::ranges::any_of(connect::local_addresses(), [](const connect::LocalAddress& one) {
    return one.loopback && one.address.is_v6();
  });
}

}  // namespace

TEST_CASE("interface filters") {
  CHECK(chosen({}) == "127.0.0.1 ::1 10.0.0.7 fd00::7 192.168.1.7 172.17.0.1 ");
  CHECK(chosen({"eth0"}) == "10.0.0.7 fd00::7 ");
  CHECK(chosen({"eth0,lo"}) == chosen({"eth0", "lo"}));
  CHECK(chosen({"eth*"}) == "10.0.0.7 fd00::7 192.168.1.7 ");
  CHECK(chosen({"^docker0,lo"}) == "10.0.0.7 fd00::7 192.168.1.7 ");
  CHECK(chosen({"^docker*", "^eth1"}) == "127.0.0.1 ::1 10.0.0.7 fd00::7 ");
  CHECK(chosen({"eth*", "^eth1"}) == "10.0.0.7 fd00::7 ");
  CHECK(chosen({"10.0.0.0/8"}) == "10.0.0.7 ");
  CHECK(chosen({"192.168.0.0/16,fd00::/8"}) == "fd00::7 192.168.1.7 ");
  CHECK(chosen({"10.0.0.7"}) == "10.0.0.7 ");
  CHECK(chosen({"0.0.0.0/0", "^127.0.0.0/8"}) == "10.0.0.7 192.168.1.7 172.17.0.1 ");
  CHECK(chosen({"^wlan0"}) == chosen({}));
  CHECK(chosen({"^docker0, lo"}) == chosen({"^docker0", "^lo"}));
  CHECK(chosen({"^docker0,^lo"}) == chosen({"^docker0", "^lo"}));
  CHECK(chosen({"eth*,^eth1"}) == "10.0.0.7 fd00::7 ");
  CHECK(chosen({" eth0 , lo "}) == chosen({"eth0", "lo"}));
  for (const char* bad : {"^", ",", "eth0,^", "^lo,,eth0"})
    CHECK_THROWS_WITH(chosen({bad}), Catch::Contains("names nothing"));
  CHECK_THROWS_WITH(chosen({"wlan0"}),
                    Catch::Contains("wlan0") && Catch::Contains("eth1 (192.168.1.7)"));
  CHECK_THROWS_WITH(chosen({"10.1.0.0/16"}), Catch::Contains("10.1.0.0/16"));
  for (const char* bad :
       {"10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/8x", "eth0/8", "fd00::/129"})
    CHECK_THROWS_AS(chosen({bad}), Error);
}

TEST_CASE("the interfaces of this machine are listed") {
  const auto all = connect::list_interfaces({"^lo"});
  const auto lo = std::ranges::find_if(
      all, [](const InterfaceInfo& one) { return one.address == "127.0.0.1"; });
  REQUIRE(lo != all.end());
  CHECK(lo->loopback);
  CHECK_FALSE(lo->chosen);
  CHECK(lo->why == "excluded by ^lo");
  CHECK(connect::list_interfaces({"lo"}).front().chosen);
}

TEST_CASE("an interface that does not exist") {
  tcp::Options options;
  options.interfaces = {"nonesuch0"};
  CHECK_THAT(message_of(options),
             Catch::Contains("nonesuch0") && Catch::Contains("lo (127.0.0.1)"));
  options.interfaces = {"^*"};
  CHECK_THAT(message_of(options), Catch::Contains("no interface at all"));
}

TEST_CASE("without a secret nothing but loopback is listened on") {
  tcp::Options options;
  const auto address = connect::decode_address(tcp::make_tcp(options)->address());
  REQUIRE(address);
  for (const auto& one : address->endpoints) CHECK(one.address().is_loopback());
  options.interfaces = {"^lo"};
  if (connect::local_addresses().size() > 2)
    CHECK_THAT(message_of(options), Catch::Contains("RONDO_SECRET"));
}

TEST_CASE("with a secret that only this host can know nothing but loopback is listened on") {
  tcp::Options options;
  options.secret = "of one user";
  options.this_host_only = true;
  const auto address = connect::decode_address(tcp::make_tcp(options)->address());
  REQUIRE(address);
  for (const auto& one : address->endpoints) CHECK(one.address().is_loopback());
}

TEST_CASE("a port range is kept to, and its end is told") {
  // The range begins at or near a port that is free now.
  const auto start =
      connect::local_endpoint(connect::listen_at(ip::make_address("127.0.0.1"), 0, 0, 0, 1).get())
          .port();
  const auto first = static_cast<std::uint16_t>(start > 60'000 ? start - 5'000 : start);
  tcp::Options options;
  options.size = 8;
  options.interfaces = {"127.0.0.1"};
  options.port_first = first;
  options.port_last = static_cast<std::uint16_t>(first + 2);
  std::vector<std::unique_ptr<transports::Transport>> transports;
  std::string problem;
  for (options.rank = 0; options.rank < 4 && problem.empty(); ++options.rank) {
    try {
      transports.push_back(tcp::make_tcp(options));
      const auto port =
          connect::decode_address(transports.back()->address())->endpoints.front().port();
      CHECK((port >= options.port_first && port <= options.port_last));
    } catch (const Error& error) {
      CHECK(error.code() == Errc::system);
      problem = error.what();
    }
  }
  CHECK(transports.size() <= 3);
  CHECK_THAT(problem, Catch::Contains(std::to_string(first) + " to " + std::to_string(first + 2)));
}

TEST_CASE("over IPv6 loopback", "[.][ipv6]") {
  if (!has_ipv6_loopback()) skip_program("this host has no IPv6 loopback");
  const auto edit = [](tcp::Options& options) { options.interfaces = {"::1"}; };
  Group group([&](int size) { return tcp_transports(size, edit); }, 3);
  for (const int from : {0, 1, 2}) {
    group[from].send((from + 1) % 3, transports::Lane::bulk, 1, 200'000);
    group[(from + 1) % 3].expect(from, transports::Lane::bulk, {1, 200'000, from == 0, 8});
  }
  group.finish();
  CHECK(group[0].transport().link(1, transports::Lane::bulk).describe().starts_with("[::1]:"));
}

TEST_CASE("addresses survive the wire and nothing else does") {
  const connect::Address address{"host 1", {endpoint("10.0.0.7", 41022), endpoint("fd00::2", 1)}};
  const transports::Blob bytes = connect::encode(address);
  const auto back = connect::decode_address(bytes);
  REQUIRE(back);
  CHECK(back->host == address.host);
  CHECK(back->endpoints == address.endpoints);
  CHECK(connect::to_text(back->endpoints[0]) == "10.0.0.7:41022");
  CHECK(connect::to_text(back->endpoints[1]) == "[fd00::2]:1");
  for (std::size_t length = 0; length < bytes.size(); ++length)
    CHECK_FALSE(connect::decode_address(std::span(bytes).first(length)));
  transports::Blob longer = bytes;
  longer.push_back(std::byte{0});
  CHECK_FALSE(connect::decode_address(longer));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    for (const unsigned value : {0u, 1u, 0x7fu, 0x80u, 0xffu}) {
      transports::Blob changed = bytes;
      changed[i] = static_cast<std::byte>(value);
      const auto read = connect::decode_address(changed);
      if (read) CHECK(connect::encode(*read) == changed);
    }
  CHECK_FALSE(connect::decode_address(connect::encode({"h", {}})));
  CHECK_FALSE(connect::decode_address(connect::encode({"h", {endpoint("0.0.0.0", 5)}})));
  CHECK_FALSE(connect::decode_address(connect::encode({"h", {endpoint("224.0.0.1", 5)}})));
  CHECK_FALSE(connect::decode_address(connect::encode({"h", {endpoint("10.0.0.1", 0)}})));
}

TEST_CASE("which endpoints are tried, and in which order") {
  const connect::Address peer{
      "h", {endpoint("172.31.0.1", 1), endpoint("192.168.9.9", 2), endpoint("127.0.0.1", 3)}};
  const auto ports = [&](bool same_host, std::span<const connect::LocalAddress> mine,
                         std::span<const connect::LocalAddress> own = {}) {
    std::vector<int> result;
    for (const auto& one : connect::candidates(peer, same_host, mine, own))
      result.push_back(one.port());
    return result;
  };
  CHECK(ports(true, machine) == std::vector<int>{3, 2, 1});
  CHECK(ports(false, machine) == std::vector<int>{2, 1});
  // A bridge has the same address on every host, so here it is an address of this host.
  const std::vector<connect::LocalAddress> bridge{
      {"docker0", ip::make_address("172.31.0.1"), 16, false}};
  CHECK(ports(false, machine, bridge) == std::vector<int>{2});
  CHECK(ports(true, machine, bridge) == std::vector<int>{3, 2, 1});
  CHECK(ports(true, std::span(machine).subspan(2)) == std::vector<int>{2, 1, 3});
}

TEST_CASE("how near another rank is") {
  tcp::Options options;
  options.size = 4;
  options.host = "here";
  const auto mine = tcp::make_tcp(options);
  CHECK(mine->reach(1, mine->address()).distance.value() < transports::distance_network);
  const transports::Blob elsewhere = connect::encode({"there", {endpoint("10.0.0.9", 5)}});
  const transports::Reach far = mine->reach(2, elsewhere);
  CHECK_FALSE(far.distance);
  CHECK_THAT(far.why, Catch::Contains("rank 2 at 10.0.0.9:5") && Catch::Contains("RONDO_SECRET"));
  CHECK_FALSE(mine->reach(3, transports::Blob(5)).distance);
  options.secret = "s";
  const auto trusted = tcp::make_tcp(options);
  CHECK(trusted->reach(2, elsewhere).distance == transports::distance_network);
  CHECK_FALSE(trusted->reach(2, connect::encode({"there", {endpoint("127.0.0.1", 5)}})).distance);
}

}  // namespace rondo::testing
