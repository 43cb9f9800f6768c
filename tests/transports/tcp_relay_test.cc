// SPDX-License-Identifier: Apache-2.0
//
// A program between two hosts passes the handshake on without knowing the secret. Then it tries to
// speak for a rank.
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include <rondo/error.h>

#include "catch.h"
#include "conformance.h"
#include "support/relay.h"
#include "transports/connect/address.h"
#include "transports/tcp/piece.h"
#include "transports/tcp/tcp.h"

namespace rondo::testing {
namespace {

constexpr std::uint64_t job = 5;
constexpr std::size_t payload = 100;

tcp::Options options_of(int rank, base::Protection protection, unsigned connections) {
  tcp::Options options;
  options.rank = rank;
  options.size = 2;
  options.secret = "secret";
  options.host = "one host";
  options.interfaces = {"lo"};
  options.connections = connections;
  options.within_host = protection;  // as if rank 1 were on another host
  return options;
}

wire::Endpoint to_endpoint(const boost::asio::ip::tcp::endpoint& from) {
  wire::Endpoint endpoint;
  endpoint.bytes = static_cast<socklen_t>(from.size());
  std::memcpy(&endpoint.storage, from.data(), from.size());
  return endpoint;
}

// Ranks 0 and 1. Rank 1 takes the relay's address for that of rank 0.
struct Between {
  Between(base::Protection protection, Attack attack, unsigned connections = 1)
      : group([&](int) { return make(protection, std::move(attack), connections); }, 2) {
    group[0].refuse_unexpected = true;
  }

  std::vector<std::unique_ptr<transports::Transport>> make(base::Protection protection,
                                                           Attack attack, unsigned connections) {
    std::vector<std::unique_ptr<transports::Transport>> transports;
    for (int rank = 0; rank < 2; ++rank)
      transports.push_back(tcp::make_tcp(options_of(rank, protection, connections)));
    const transports::Blob zero = transports[0]->address(), one = transports[1]->address();
    auto told = connect::decode_address(zero).value();
    relay = std::make_unique<Relay>(to_endpoint(told.endpoints.front()), std::move(attack));
    told.endpoints = {{boost::asio::ip::address_v4::loopback(), relay->endpoint().port()}};
    told.rails.resize(1);
    transports[0]->start({zero, one}, job);
    transports[1]->start({connect::encode(told), one}, job);
    return transports;
  }

  // Rank 1 sends three frames. Returns how the link ended for rank 0, if it did.
  std::optional<Node::Broken> send_three() {
    for (const std::uint64_t number : {1u, 2u, 3u}) {
      group[1].send(0, transports::Lane::bulk, number, payload);
      group[0].expect(1, transports::Lane::bulk, {number, payload, true, 1});
    }
    group.run_until([&] {
      return group[0].idle() || !group[0].broken_links.empty() || !group[0].problems.empty();
    });
    if (group[0].broken_links.empty()) return std::nullopt;
    return group[0].broken_links.front();
  }

  std::unique_ptr<Relay> relay;
  Group group;
};

constexpr std::size_t head = transports::frame_header_bytes + base::tag_bytes,
                      frame = head + payload;

}  // namespace

TEST_CASE(
    "what comes from another host has tags without being asked, what comes over loopback has "
    "none") {
  tcp::Options options = options_of(0, base::Protection::none, 1);
  const base::Claim claim{.purpose = base::Purpose::data, .rank = 1, .size = 2, .job = job};
  for (const base::Protection wanted : {base::Protection::headers, base::Protection::payload}) {
    options.between_hosts = wanted;
    const auto transport = tcp::make_tcp(options);
    transport->start({transport->address(), transport->address()}, job);
    wire::Endpoint at =
        to_endpoint(connect::decode_address(transport->address())->endpoints.front());
    const base::FileDescriptor outside = connect_from_outside(at.port());
    if (!outside) {
      WARN("skipped: this host has no IPv4 address other than loopback");
      return;
    }
    CHECK(agree_over(outside, claim, "secret").protection == wanted);
    base::FileDescriptor inside(::socket(at.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(inside.get(), at.address(), at.bytes) == 0);
    base::Claim other = claim;
    other.lane = 1;
    CHECK(agree_over(inside, other, "secret").protection == base::Protection::none);
  }
}

TEST_CASE("a relay that changes nothing is not noticed") {
  for (const base::Protection protection : {base::Protection::headers, base::Protection::payload})
    for (const unsigned connections : {1u, 2u}) {
      Between ranks(protection, {}, connections);
      const auto broken = ranks.send_three();
      INFO((broken ? broken->what : ""));
      CHECK_FALSE(broken);
      CHECK(ranks.group[0].frames == 3);
    }
}

TEST_CASE("a relay cannot speak for a rank") {
  const std::size_t first = behind_proof, second = first + frame;
  struct Case {
    const char* what;
    Attack attack;
  };
  const Case cases[] = {
      {"an altered header", {true, second + 10, 1, altered}},
      {"an altered tag", {true, second + transports::frame_header_bytes, 1, altered}},
      {"a frame twice", {true, first, frame, doubled}},
      {"a frame left out", {true, second, frame, dropped}},
      {"two frames that change places",
       {true, first, 2 * frame,
        [](RelayBytes all) {
          std::rotate(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(frame), all.end());
          return all;
        }}},
      {"a frame of its own",
       {true, second, 1,
        [](RelayBytes all) {
          const transports::HeaderBytes header = header_of(2);
          RelayBytes forged(header.begin(), header.end());
          forged.resize(frame);
          forged.insert(forged.end(), all.begin(), all.end());
          return forged;
        }}},
  };
  for (const Case& one : cases) {
    Between ranks(base::Protection::headers, one.attack);
    const auto broken = ranks.send_three();
    INFO(one.what);
    REQUIRE(broken);
    CHECK(broken->code == Errc::authentication);
    CHECK(broken->what.find("wrong tag") != std::string::npos);
    CHECK(ranks.group[0].problems.empty());
  }
}

TEST_CASE("a relay cannot speak for a rank on one of several paths") {
  for (const std::size_t at : {std::size_t{2}, std::size_t{30}, tcp::piece_prefix_bytes + 1}) {
    Between ranks(base::Protection::headers, {true, behind_proof + at, 1, altered}, 2);
    const auto broken = ranks.send_three();
    REQUIRE(broken);
    CHECK(broken->code == Errc::authentication);
    CHECK(broken->what.find("wrong tag") != std::string::npos);
  }
}

TEST_CASE("an altered payload is noticed where payloads have tags") {
  for (const unsigned connections : {1u, 2u}) {
    const std::size_t before = connections == 1 ? head : tcp::piece_prefix_bytes + base::tag_bytes;
    const Attack attack{true, behind_proof + before + 7, 1, altered};
    Between ranks(base::Protection::payload, attack, connections);
    const auto broken = ranks.send_three();
    REQUIRE(broken);
    CHECK(broken->code == Errc::authentication);
    CHECK(ranks.group[0].problems.empty());
  }
}

// docs/reference/security.md says this about RONDO_INTEGRITY=headers.
TEST_CASE("an altered payload is not noticed where headers alone have tags") {
  Between ranks(base::Protection::headers, {true, behind_proof + head + 7, 1, altered});
  CHECK_FALSE(ranks.send_three());
  CHECK_FALSE(ranks.group[0].problems.empty());
}

}  // namespace rondo::testing
