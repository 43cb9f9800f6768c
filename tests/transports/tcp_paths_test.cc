// SPDX-License-Identifier: Apache-2.0
//
// Which connections a link between two hosts has.
#include "transports/tcp/paths.h"

#include <fmt/format.h>

#include <boost/asio/ip/address.hpp>
#include <utility>

#include "catch.h"
#include "transports/tcp/tcp.h"

namespace rondo::testing {
namespace {

struct Interface {
  std::string name, address;
  unsigned prefix_bits = 24;
  std::uint32_t speed = 1000;
  bool pairs = true;
};

connect::Address host(const std::string& name, const std::vector<Interface>& interfaces,
                      unsigned connections = 1) {
  connect::Address address;
  address.host = name;
  address.connections = connections;
  for (const Interface& one : interfaces) {
    address.endpoints.emplace_back(boost::asio::ip::make_address(one.address), std::uint16_t{1});
    address.rails.push_back(
        {one.name, one.speed, static_cast<std::uint8_t>(one.prefix_bits), one.pairs});
  }
  return address;
}

// "0-1 1-0": indices in the two lists of endpoints.
std::string pairs(const tcp::PathPlan& plan) {
  std::string text;
  for (const auto& [lower, higher] : plan.pairs)
    text += fmt::format("{}{}-{}", text.empty() ? "" : " ", lower, higher);
  return text;
}

}  // namespace

TEST_CASE("interfaces of two hosts are paired by network, the fastest first") {
  const auto a =
      host("a", {{"eth0", "10.1.0.1"}, {"eth1", "10.2.0.1", 24, 10'000}, {"lo", "127.0.0.1", 8}});
  const auto b =
      host("b", {{"ens1", "10.2.0.2", 24, 25'000}, {"ens0", "10.1.0.2"}, {"lo", "127.0.0.1", 8}});
  const tcp::PathPlan plan = tcp::plan_paths(a, b);
  CHECK(pairs(plan) == "1-0");
  CHECK(plan.paths == 1);
  CHECK(plan.lower_unused[0] == "1000 Mbit/s, too slow beside 10000 Mbit/s");
  CHECK(plan.higher_unused[1] == plan.lower_unused[0]);
  CHECK(plan.lower_unused[1].empty());
  CHECK(plan.lower_unused[2] == "loopback");
  const auto c = host("c", {{"eth0", "10.1.0.3", 24, 2000}, {"eth1", "10.2.0.3", 24, 1000}});
  CHECK(pairs(tcp::plan_paths(a, c)) == "0-0 1-1");
  CHECK(pairs(tcp::plan_paths(c, a)) == "0-0 1-1");
  // A pair with an eighth of the speed of the fastest is used, a slower one is not.
  for (const auto& [speed, wanted] : {std::pair{1250u, "1-1 0-0"}, {1249u, "1-1"}}) {
    const auto d = host("d", {{"eth0", "10.1.0.4", 24, speed}, {"eth1", "10.2.0.4", 24, 10'000}});
    const auto e = host("e", {{"eth0", "10.1.0.5", 24, speed}, {"eth1", "10.2.0.5", 24, 10'000}});
    CHECK(pairs(tcp::plan_paths(d, e)) == wanted);
  }
}

TEST_CASE("both ends come to the same pairs") {
  const auto a = host("a", {{"e0", "10.0.0.1"}, {"e1", "10.0.0.2"}, {"e2", "fd00::1", 64}}, 3);
  const auto b = host(
      "b", {{"f0", "fd00::9", 64}, {"f1", "10.0.0.9"}, {"f1", "10.0.0.8"}, {"f2", "10.0.0.7"}}, 2);
  const tcp::PathPlan plan = tcp::plan_paths(a, b);
  CHECK(pairs(plan) == "0-1 1-3 2-0");
  CHECK(plan.paths == 6);
  CHECK(plan.higher_unused[2] == "its interface has a path already");
}

TEST_CASE("what has no pair, and why") {
  const auto a = host(
      "a", {{"docker0", "172.17.0.1", 16, 0, false}, {"eth0", "10.0.0.1"}, {"br0", "10.9.0.1"}});
  const auto b = host("b", {{"eth0", "10.0.1.1"}, {"br0", "10.9.0.1"}, {"eth1", "172.17.0.2", 16}});
  const tcp::PathPlan plan = tcp::plan_paths(a, b);
  CHECK(plan.pairs.empty());
  CHECK(plan.paths == 1);
  CHECK(plan.lower_unused[0].find("for containers") != std::string::npos);
  CHECK(plan.lower_unused[1] == "no network in common");
  CHECK(plan.lower_unused[2] == "both hosts have this address");
  CHECK(plan.higher_unused[2] == "no network in common");
}

TEST_CASE("ranks of one host have one connection, or as many as both want") {
  const std::vector<Interface> interfaces{{"lo", "127.0.0.1", 8}, {"eth0", "10.0.0.1"}};
  CHECK(tcp::plan_paths(host("a", interfaces), host("a", interfaces)).paths == 1);
  const tcp::PathPlan plan = tcp::plan_paths(host("a", interfaces, 4), host("a", interfaces, 3));
  CHECK(plan.paths == 3);
  CHECK(plan.pairs.empty());
}

TEST_CASE("there is a bound to the paths of a link") {
  std::vector<Interface> many[2];
  for (int i = 0; i < 20; ++i)
    for (int side = 0; side < 2; ++side)
      many[side].push_back({fmt::format("e{}", i), fmt::format("10.{}.0.{}", i, side + 1)});
  const tcp::PathPlan plan = tcp::plan_paths(host("a", many[0], 16), host("b", many[1], 16));
  CHECK(plan.paths == connect::most_connections);
  CHECK(plan.pairs.size() == connect::most_connections);
  // An address whose interfaces are not known.
  CHECK(tcp::plan_paths({"a", {{}, {}}}, host("b", many[1])).pairs.empty());
}

}  // namespace rondo::testing
