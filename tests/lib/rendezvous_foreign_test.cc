// SPDX-License-Identifier: Apache-2.0
//
// Rendezvous with wrong peers: wrong secrets, other versions, other programs, ranks that die.
#include <poll.h>
#include <sys/socket.h>

#include "base/handshake.h"
#include "catch.h"
#include "lib/wire/messages.h"
#include "played_rank.h"

using namespace rondo;
using namespace rondo::tests;

namespace {

std::future<Outcome> start(const rendezvous::Place& place,
                           milliseconds deadline = milliseconds{20'000}) {
  return std::async(std::launch::async, [place, deadline] {
    return join_one(place, with_deadline(deadline), record_of(place.rank));
  });
}

std::string tcp_url(std::uint16_t port) {
  return "tcp://127.0.0.1:" + std::to_string(port);
}

}  // namespace

TEST_CASE("a wrong secret is refused at once and the right rank can still come", "[rendezvous]") {
  const std::string url = free_url();
  auto rank0 = start(place_of(0, 3, url, "right"));
  auto rank1 = start(place_of(1, 3, url, "right"));
  const Outcome wrong = start(place_of(2, 3, url, "wrong")).get();
  CHECK(wrong.code == Errc::authentication);
  CHECK_THAT(wrong.message,
             Catch::Contains("RONDO_SECRET") && Catch::Contains(url) && Catch::Contains("rank 2"));
  CHECK(wrong.seconds < 10);
  const Outcome none = start(place_of(2, 3, url)).get();
  CHECK(none.code == Errc::authentication);
  CHECK_THAT(none.message, Catch::Contains("a job secret is needed"));
  auto rank2 = start(place_of(2, 3, url, "right"));
  std::vector<Outcome> outcomes;
  outcomes.push_back(rank0.get());
  outcomes.push_back(rank1.get());
  outcomes.push_back(rank2.get());
  CHECK(what_is_wrong(outcomes) == "");
}

TEST_CASE("refused attempts are named at the deadline", "[rendezvous]") {
  const std::string url = free_url();
  auto rank0 = start(place_of(0, 3, url, "right"), milliseconds{1'500});
  auto rank1 = start(place_of(1, 3, url, "right"), milliseconds{1'500});
  CHECK(start(place_of(2, 3, url, "wrong")).get().code == Errc::authentication);
  const Outcome first = rank0.get(), second = rank1.get();
  CHECK(first.code == Errc::deadline_exceeded);
  CHECK(first.message == second.message);
  CHECK_THAT(first.message, Catch::Contains("missing: rank 2") &&
                                Catch::Contains("turned away or gone: rank 2 from 127.0.0.1:") &&
                                Catch::Contains("the job secrets differ"));
}

TEST_CASE("rank 0 does not wait for ranks that were turned away for good", "[rendezvous]") {
  const std::string url = free_url();
  rendezvous::Place place = place_of(0, 3, url, "right");
  place.refused_grace = milliseconds{100};
  auto rank0 = start(place);
  CHECK(start(place_of(2, 3, url, "wrong")).get().code == Errc::authentication);
  auto rank1 = start(place_of(1, 3, url, "right"));
  const Outcome first = rank0.get(), second = rank1.get();
  CHECK(first.code == Errc::authentication);
  CHECK(first.message == second.message);
  CHECK_THAT(first.message, Catch::Contains("missing: rank 2") &&
                                Catch::Contains("did not prove the secret") &&
                                Catch::Contains("the job secrets differ"));
  CHECK(first.seconds < 10);
}

TEST_CASE("wrong proofs of ranks that are there do not end the join", "[rendezvous]") {
  const std::uint16_t port = free_port();
  rendezvous::Place place = place_of(0, 3, tcp_url(port), "right");
  auto rank0 = start(place);
  auto rank1 = start(place_of(1, 3, tcp_url(port), "right"));
  for (const std::uint32_t rank : {0u, 1u}) {
    wire::Stream stream = connected(port);
    CHECK_THROWS_WITH(greet(stream, {base::Purpose::rendezvous, rank, 3, 0, 0, 0}, "wrong"),
                      Catch::Contains("the job secrets differ"));
    stream.send(base::refused_proof);
    CHECK(base::Initiator::read_verdict(receive<base::verdict_bytes>(stream)) ==
          base::Verdict::bad_secret);
  }
  auto rank2 = start(place_of(2, 3, tcp_url(port), "right"));
  std::vector<Outcome> outcomes;
  outcomes.push_back(rank0.get());
  outcomes.push_back(rank1.get());
  outcomes.push_back(rank2.get());
  CHECK(what_is_wrong(outcomes) == "");
}

TEST_CASE("another version is told so and named", "[rendezvous]") {
  const std::uint16_t port = free_port();
  auto rank0 = start(place_of(0, 2, tcp_url(port), "s"), milliseconds{1'000});
  wire::Stream stream = connected(port);
  base::Initiator initiator({base::Purpose::rendezvous, 1, 2, 0, 0, 0}, 0, "s");
  base::HelloBytes hello = initiator.hello();
  hello[8] = std::byte{9};
  stream.send(hello);
  receive<base::challenge_bytes>(stream);
  CHECK(base::Initiator::read_verdict(receive<base::verdict_bytes>(stream)) ==
        base::Verdict::bad_version);
  const Outcome outcome = rank0.get();
  CHECK_THAT(outcome.message, Catch::Contains("rank 1 from 127.0.0.1:") &&
                                  Catch::Contains("the wire versions differ"));
}

TEST_CASE("a rank that meets another version of rank 0 fails at once", "[rendezvous]") {
  const std::uint16_t port = free_port();
  const auto listeners = wire::listen_on(wire::loopback_address(port), 0, 0);
  auto rank1 = start(place_of(1, 2, tcp_url(port)));
  REQUIRE(wire::wait_for(listeners.front().get(), POLLIN,
                         base::after(base::Clock::now(), milliseconds{20'000})));
  wire::Stream stream(wire::accept_from(listeners.front().get()));
  base::Acceptor acceptor(0, "");
  base::ChallengeBytes challenge = acceptor.challenge(receive<base::hello_bytes>(stream));
  challenge[8] = std::byte{9};
  stream.send(challenge);
  const Outcome outcome = rank1.get();
  CHECK(outcome.code == Errc::unsupported);
  CHECK_THAT(outcome.message,
             Catch::Contains("wire version 9") && Catch::Contains("same version of Rondo"));
  CHECK(outcome.seconds < 10);
}

TEST_CASE("rank 0 may come late, after another program had its port", "[rendezvous]") {
  const std::uint16_t port = free_port();
  auto listeners = wire::listen_on(wire::loopback_address(port), 0, 0);
  auto rank1 = start(place_of(1, 2, tcp_url(port)));
  REQUIRE(wire::wait_for(listeners.front().get(), POLLIN,
                         base::after(base::Clock::now(), milliseconds{20'000})));
  {
    // A stranger answers with other words and closes: rank 1 has now tried once and failed.
    wire::Stream stream(wire::accept_from(listeners.front().get()));
    receive<base::hello_bytes>(stream);
    constexpr std::string_view answer = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    stream.send(std::as_bytes(std::span(answer)));
    stream.send(std::vector<std::byte>(100));
  }
  listeners.clear();
  auto rank0 = start(place_of(0, 2, tcp_url(port)));
  std::vector<Outcome> outcomes;
  outcomes.push_back(rank0.get());
  outcomes.push_back(rank1.get());
  CHECK(what_is_wrong(outcomes) == "");
}

TEST_CASE("what listens there and is not Rondo is named at the deadline", "[rendezvous]") {
  const std::uint16_t port = free_port();
  const auto listeners = wire::listen_on(wire::loopback_address(port), 0, 0);
  auto rank1 = start(place_of(1, 2, tcp_url(port)), milliseconds{600});
  const base::TimePoint until = base::after(base::Clock::now(), milliseconds{20'000});
  REQUIRE(wire::wait_for(listeners.front().get(), POLLIN, until));
  wire::Stream stream(wire::accept_from(listeners.front().get()));
  receive<base::hello_bytes>(stream);
  stream.send(std::vector<std::byte>(base::challenge_bytes, std::byte{'?'}));
  const Outcome outcome = rank1.get();
  CHECK(outcome.code == Errc::deadline_exceeded);
  // At the last attempt the listener sent nothing.
  CHECK_THAT(outcome.message,
             Catch::Contains("no answer to the handshake") || Catch::Contains("is not Rondo"));
  CHECK(outcome.seconds < 10);
}

TEST_CASE("garbage, silence and floods do not disturb the join", "[rendezvous]") {
  const std::uint16_t port = free_port();
  auto rank0 = start(place_of(0, 4, tcp_url(port), "s"));
  std::vector<wire::Stream> strangers;
  const int count = GENERATE(1, 200);
  for (int i = 0; i < count; ++i) {
    strangers.push_back(connected(port));
    wire::Stream& stream = strangers.back();
    switch (i % 4) {
      case 0:
        break;  // silent
      case 1:
        stream.send(std::vector<std::byte>(96, std::byte{0xff}));
        break;
      case 2:
        stream.send(std::vector<std::byte>(50'000, std::byte{'r'}));
        break;
      default:
        stream.send(base::Initiator({base::Purpose::rendezvous, 3, 4, 0, 0, 0}, 0, "").hello());
        break;  // only the hello
    }
  }
  const auto outcomes =
      join_all({place_of(1, 4, tcp_url(port), "s"), place_of(2, 4, tcp_url(port), "s"),
                place_of(3, 4, tcp_url(port), "s")});
  const Outcome first = rank0.get();
  REQUIRE(first.joined);
  for (const Outcome& outcome : outcomes) {
    REQUIRE(outcome.joined);
    CHECK(outcome.joined->job == first.joined->job);
    CHECK(outcome.seconds < 10);
  }
}

TEST_CASE("a rank that dies while the others come may be started again", "[rendezvous]") {
  const std::uint16_t port = free_port();
  auto rank0 = start(place_of(0, 3, tcp_url(port), "s"));
  {
    wire::Stream dies = welcomed(port, 1, 3, "s");
    dies.send(wire::encode(wire::RecordMessage{60'000, record_of(1)}));
    wire::Stream dies_early = welcomed(port, 2, 3, "s");
  }
  auto rank1 = start(place_of(1, 3, tcp_url(port), "s"));
  auto rank2 = start(place_of(2, 3, tcp_url(port), "s"));
  std::vector<Outcome> outcomes;
  outcomes.push_back(rank0.get());
  outcomes.push_back(rank1.get());
  outcomes.push_back(rank2.get());
  CHECK(what_is_wrong(outcomes) == "");
}

TEST_CASE("a rank that has come and gone is named", "[rendezvous]") {
  const std::uint16_t port = free_port();
  auto rank0 = start(place_of(0, 2, tcp_url(port), "s"), milliseconds{1'000});
  { wire::Stream dies = welcomed(port, 1, 2, "s"); }
  CHECK_THAT(rank0.get().message, Catch::Contains("missing: rank 1") &&
                                      Catch::Contains("rank 1 from 127.0.0.1:") &&
                                      Catch::Contains("connection closed by peer"));
}

TEST_CASE("a rank with something else than a record is not taken in", "[rendezvous]") {
  const std::uint16_t port = free_port();
  auto rank0 = start(place_of(0, 2, tcp_url(port)), milliseconds{1'000});
  wire::Stream odd = welcomed(port, 1, 2, "");
  odd.send(wire::make_frame(1, std::vector<std::byte>(3)));
  wire::Stream endless = connected(port);
  CHECK_THAT(rank0.get().message, Catch::Contains("missing: rank 1") &&
                                      Catch::Contains("something else than its record"));

  auto again = start(place_of(0, 2, tcp_url(port)), milliseconds{1'000});
  wire::Stream huge = welcomed(port, 1, 2, "");
  const std::array<std::byte, 8> prefix{std::byte{0xff}, std::byte{0xff}, std::byte{0xff},
                                        std::byte{0xff}, std::byte{1}};
  huge.send(prefix);
  CHECK_THAT(again.get().message, Catch::Contains("a frame of 4294967295 bytes"));
}

TEST_CASE("a data connection that strays to the rendezvous is sent away", "[rendezvous]") {
  const std::uint16_t port = free_port();
  auto rank0 = start(place_of(0, 2, tcp_url(port), "s"));
  wire::Stream stream = connected(port);
  base::Initiator initiator({base::Purpose::data, 1, 2, 77, 0, 0}, 0, "s");
  stream.send(initiator.hello());
  stream.send(initiator.answer(receive<base::challenge_bytes>(stream)));
  CHECK(base::Initiator::read_verdict(receive<base::verdict_bytes>(stream)) ==
        base::Verdict::wrong_job);
  auto rank1 = start(place_of(1, 2, tcp_url(port), "s"));
  CHECK(rank0.get().joined);
  CHECK(rank1.get().joined);
}
