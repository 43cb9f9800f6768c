// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "catch.h"
#include "lib/settings/url.h"
#include "ranks.h"

using namespace rondo;
using namespace rondo::tests;

namespace {

constexpr double slowness = RONDO_SANITIZED ? 8 : 1;

// Checks that every outcome is an error with this code and the same message; returns the message.
std::string common_message(const std::vector<Outcome>& outcomes, Errc code) {
  for (const Outcome& outcome : outcomes) {
    CHECK_FALSE(outcome.joined);
    CHECK(outcome.code == code);
    CHECK(outcome.message == outcomes.front().message);
  }
  return outcomes.front().message;
}

double slowest(const std::vector<Outcome>& outcomes) {
  double seconds = 0;
  for (const Outcome& outcome : outcomes) seconds = std::max(seconds, outcome.seconds);
  return seconds;
}

}  // namespace

TEST_CASE("one rank is alone and opens nothing", "[rendezvous]") {
  const Outcome outcome = join_one(place_of(0, 1, ""), Options{}, record_of(0));
  REQUIRE(outcome.joined);
  CHECK(outcome.joined->control == nullptr);
  CHECK(outcome.joined->records == std::vector<transports::Blob>{record_of(0)});
  CHECK(outcome.joined->job != 0);
}

TEST_CASE("ranks meet over tcp", "[rendezvous]") {
  const std::string secret = GENERATE("", "a secret that all know");
  const int size = GENERATE(2, 3, 8);
  for (const char* host : {"127.0.0.1", "[::1]", "localhost"}) {
    const std::string url = std::string("tcp://") + host + ":" + std::to_string(free_port());
    INFO(url << ", " << size << " ranks, secret '" << secret << "'");
    CHECK(what_is_wrong(join_all(all_places(size, url, secret))) == "");
  }
}

TEST_CASE("sixty-four ranks meet quickly", "[rendezvous]") {
  const auto outcomes = join_all(all_places(64, free_url(), "secret"));
  CHECK(what_is_wrong(outcomes) == "");
  CHECK(slowest(outcomes) < 1.0 * slowness);
}

TEST_CASE("large records arrive whole and larger ones are refused", "[rendezvous]") {
  const std::string url = free_url();
  const transports::Blob large(std::size_t{64} << 10, std::byte{7});
  auto other = std::async(std::launch::async, [&] {
    return join_one(place_of(1, 2, url), with_deadline(milliseconds{20'000}), large);
  });
  const Outcome mine = join_one(place_of(0, 2, url), with_deadline(milliseconds{20'000}), large);
  const Outcome its = other.get();
  REQUIRE(mine.joined);
  REQUIRE(its.joined);
  CHECK(mine.joined->records == std::vector<transports::Blob>{large, large});
  CHECK(its.joined->records == std::vector<transports::Blob>{large, large});

  const Outcome refused =
      join_one(place_of(0, 1, ""), Options{}, transports::Blob((std::size_t{64} << 10) + 1));
  CHECK(refused.code == Errc::invalid_argument);
  CHECK_THAT(refused.message, Catch::Contains("65537"));
}

TEST_CASE("missing ranks are named at the deadline, in the same words everywhere", "[rendezvous]") {
  const std::string url = free_url();
  const auto outcomes =
      join_all({place_of(0, 6, url), place_of(2, 6, url)}, with_deadline(milliseconds{400}));
  const std::string message = common_message(outcomes, Errc::deadline_exceeded);
  CHECK_THAT(message, Catch::Contains("missing: ranks 1, 3-5"));
  CHECK_THAT(message, Catch::Contains(url));
  CHECK_THAT(message, Catch::Contains("the 6 ranks did not come together"));
  CHECK(slowest(outcomes) < 0.4 + 1.0 * slowness);
}

TEST_CASE("the earliest deadline ends the join for all who came", "[rendezvous]") {
  const std::string url = free_url();
  auto hasty = std::async(std::launch::async, [&] {
    return join_one(place_of(1, 3, url), with_deadline(milliseconds{400}), record_of(1));
  });
  const Outcome patient =
      join_one(place_of(0, 3, url), with_deadline(milliseconds{60'000}), record_of(0));
  const Outcome first = hasty.get();
  CHECK(patient.code == Errc::deadline_exceeded);
  CHECK(patient.message == first.message);
  CHECK_THAT(patient.message, Catch::Contains("by the deadline of rank 1"));
  CHECK_THAT(patient.message, Catch::Contains("missing: rank 2"));
  CHECK(patient.seconds < 10);
}

TEST_CASE("a rank that comes twice ends the join at once, with both addresses", "[rendezvous]") {
  const std::string url = free_url();
  const auto outcomes = join_all(
      {place_of(0, 4, url), place_of(1, 4, url), place_of(1, 4, url), place_of(2, 4, url)});
  const std::string message = common_message(outcomes, Errc::rendezvous);
  CHECK_THAT(message, Catch::Contains("came twice: rank 1 (from 127.0.0.1:"));
  CHECK_THAT(message, Catch::Contains(" and from 127.0.0.1:"));
  CHECK_THAT(message, Catch::Contains("not there yet: rank 3"));
  CHECK(slowest(outcomes) < 2 * slowness);
}

TEST_CASE("ranks that disagree about the size end the join at once", "[rendezvous]") {
  const std::string url = free_url();
  const auto outcomes = join_all({place_of(0, 3, url), place_of(1, 3, url), place_of(2, 5, url)});
  const std::string message = common_message(outcomes, Errc::rendezvous);
  CHECK_THAT(message, Catch::Contains("says it is rank 2 of 5, rank 0 says there are 3"));
  CHECK(slowest(outcomes) < 2 * slowness);
}

TEST_CASE("a rank that cannot be ends the join at once", "[rendezvous]") {
  const std::string url = free_url();
  const auto outcomes = join_all({place_of(0, 2, url), place_of(7, 2, url)});
  CHECK_THAT(common_message(outcomes, Errc::rendezvous), Catch::Contains("says it is rank 7 of 2"));
}

TEST_CASE("a second rank 0 hears that the address is in use", "[rendezvous]") {
  const std::uint16_t port = free_port();
  const auto listener = wire::listen_on(wire::loopback_address(port), 0, 0);
  const Outcome outcome =
      join_one(place_of(0, 2, "tcp://127.0.0.1:" + std::to_string(port)), Options{}, record_of(0));
  CHECK(outcome.code == Errc::system);
  CHECK_THAT(outcome.message,
             Catch::Contains("address already in use") && Catch::Contains("another rank 0"));
}

TEST_CASE("without rank 0 the others say so and where they looked", "[rendezvous]") {
  const std::string url = free_url();
  const auto outcomes =
      join_all({place_of(1, 3, url), place_of(2, 3, url)}, with_deadline(milliseconds{300}));
  for (const Outcome& outcome : outcomes) {
    CHECK(outcome.code == Errc::deadline_exceeded);
    CHECK_THAT(outcome.message, Catch::Contains("rank 0 was not found") && Catch::Contains(url) &&
                                    Catch::Contains("connection refused") &&
                                    Catch::Contains("0.3 s"));
    CHECK(outcome.seconds < 0.3 + slowness);
  }
}

TEST_CASE("a rank that begins to join after its deadline does not accuse rank 0", "[rendezvous]") {
  rendezvous::Place place = place_of(1, 2, free_url());
  place.deadline = base::Clock::now() - milliseconds{1};
  Errc code{};
  std::string message;
  try {
    (void)rendezvous::join(place, settings::with_environment(with_deadline(milliseconds{300})),
                           record_of(1));
  } catch (const Error& error) {
    code = static_cast<Errc>(error.code().value());
    message = error.what();
  }
  CHECK(code == Errc::deadline_exceeded);
  CHECK_THAT(message, Catch::StartsWith("rank 1 could not join") && Catch::Contains("0.3 s") &&
                          Catch::Contains("its time was over before it looked for rank 0") &&
                          !Catch::Contains("not found"));
}

TEST_CASE("without a secret only this host can be named", "[rendezvous]") {
  // An address for documentation (RFC 5737), which no host has.
  for (const int rank : {0, 1}) {
    const Outcome outcome =
        join_one(place_of(rank, 2, "tcp://198.51.100.7:29500"), Options{}, record_of(rank));
    CHECK(outcome.code == Errc::authentication);
    CHECK_THAT(outcome.message,
               Catch::Contains("not an address of this host") && Catch::Contains("RONDO_SECRET"));
    CHECK(outcome.seconds < slowness);
  }
}

TEST_CASE("communicators can follow each other at the same place", "[rendezvous]") {
  const Directory directory;
  for (const std::string& url : {free_url(), "file://" + directory.path() + "/meet"}) {
    std::vector<std::future<std::vector<std::uint64_t>>> ranks;
    for (int rank = 0; rank < 3; ++rank)
      ranks.push_back(std::async(std::launch::async, [&, rank] {
        std::vector<std::uint64_t> jobs;
        for (int round = 0; round < 10; ++round) {
          const auto outcome = join_one(place_of(rank, 3, url, "s"),
                                        with_deadline(milliseconds{20'000}), record_of(rank));
          jobs.push_back(outcome.joined ? outcome.joined->job : 0);
        }
        return jobs;
      }));
    const auto first = ranks[0].get(), second = ranks[1].get(), third = ranks[2].get();
    CHECK(std::ranges::count(first, 0u) == 0);
    CHECK(first == second);
    CHECK(first == third);
  }
}

TEST_CASE("URLs are checked", "[rendezvous]") {
  const auto tcp = settings::parse_rendezvous("tcp://[fd00::2]:29500", "x");
  CHECK(tcp.kind == settings::RendezvousUrl::Kind::tcp);
  CHECK(tcp.host == "fd00::2");
  CHECK(tcp.port == 29500);
  CHECK(settings::parse_rendezvous("tcp://node-7.cluster:1", "x").host == "node-7.cluster");
  CHECK(settings::parse_rendezvous("file:///tmp/a b", "x").path == "/tmp/a b");
  for (const char* bad :
       {"", "tcp://", "tcp://host", "tcp://host:", "tcp://host:0", "tcp://host:65536",
        "tcp://host:12x", "tcp://:80", "tcp://fd00::2:80", "tcp://[fd00::2:80", "tcp://a b:80",
        "tcp://u@h:80", "file://", "file://relative", "file:///", "file:///directory/",
        "http://host:80", "host:80", "env:/"}) {
    INFO(bad);
    CHECK_THROWS_WITH(settings::parse_rendezvous(bad, "RONDO_RENDEZVOUS"),
                      Catch::Contains("RONDO_RENDEZVOUS is '" + std::string(bad) + "'") &&
                          Catch::Contains("tcp://HOST:PORT"));
  }
  CHECK_THROWS_AS(settings::parse_rendezvous("tcp://" + std::string(3000, 'a') + ":80", "x"),
                  Error);
}
