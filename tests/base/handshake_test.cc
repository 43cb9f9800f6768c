// SPDX-License-Identifier: Apache-2.0
#include "base/handshake.h"

#include <rondo/error.h>

#include "catch.h"

using namespace rondo;

namespace {

const base::Claim claim{base::Purpose::data, 3, 8, 0x1122334455667788u, 1, 2};

// A handshake in which every message arrives as it was sent.
struct Exchange {
  base::Initiator initiator;
  base::Acceptor acceptor;
  base::HelloBytes hello;
  base::ChallengeBytes challenge;

  Exchange(std::string_view initiator_secret, std::string_view acceptor_secret,
           std::uint32_t peer = 0)
      : initiator(claim, peer, initiator_secret),
        acceptor(0, acceptor_secret),
        hello(initiator.hello()),
        challenge(acceptor.challenge(hello)) {}
};

Errc code_of(base::Initiator& initiator, const base::ChallengeBytes& challenge) {
  try {
    initiator.answer(challenge);
  } catch (const Error& error) {
    return static_cast<Errc>(error.code().value());
  }
  return Errc{};
}

}  // namespace

TEST_CASE("both ends prove the same secret", "[handshake]") {
  for (const std::string& secret :
       {std::string("correct horse"), std::string(), std::string(300, 'x')}) {
    Exchange exchange(secret, secret);
    const base::ProofBytes proof = exchange.initiator.answer(exchange.challenge);
    CHECK(exchange.acceptor.proves(proof));
    CHECK_FALSE(exchange.acceptor.proves(base::refused_proof));
    CHECK(exchange.acceptor.version() == base::wire_version);
    CHECK(exchange.acceptor.meant_for_this_rank());
    CHECK(exchange.acceptor.peer_has_secret() == !secret.empty());
    const base::Claim& heard = exchange.acceptor.claim();
    CHECK(heard.purpose == claim.purpose);
    CHECK(heard.rank == claim.rank);
    CHECK(heard.size == claim.size);
    CHECK(heard.job == claim.job);
    CHECK(heard.lane == claim.lane);
    CHECK(heard.connection == claim.connection);
  }
}

TEST_CASE("a wrong secret is noticed by whoever looks first", "[handshake]") {
  Exchange exchange("one", "two");
  CHECK_THROWS_WITH(exchange.initiator.answer(exchange.challenge), Catch::Contains("RONDO_SECRET"));
  CHECK(code_of(exchange.initiator, exchange.challenge) == Errc::authentication);
  CHECK(exchange.acceptor.refusal() == base::Verdict::bad_secret);

  // An impostor that does not check the acceptor's proof cannot make its own either.
  Exchange impostor("two", "two");
  base::Acceptor victim(0, "one");
  Exchange other("one", "one");
  const base::ProofBytes proof = impostor.initiator.answer(impostor.challenge);
  CHECK_FALSE(other.acceptor.proves(proof));
}

TEST_CASE("a missing secret has its own word", "[handshake]") {
  Exchange none("", "two");
  CHECK_THROWS_WITH(none.initiator.answer(none.challenge), Catch::Contains("is needed"));
  CHECK(none.acceptor.refusal() == base::Verdict::secret_needed);
  Exchange surplus("two", "");
  CHECK(code_of(surplus.initiator, surplus.challenge) == Errc::authentication);
}

TEST_CASE("no bit of the messages can be changed", "[handshake]") {
  for (std::size_t bit = 0; bit < base::hello_bytes * 8; bit += 5) {
    base::Initiator initiator(claim, 0, "secret");
    base::HelloBytes hello = initiator.hello();
    hello[bit / 8] ^= std::byte{1} << (bit % 8);
    base::Acceptor acceptor(0, "secret");
    if (bit / 8 < 8) {
      CHECK_THROWS_AS(acceptor.challenge(hello), Error);
      continue;
    }
    const base::ChallengeBytes challenge = acceptor.challenge(hello);
    CHECK(code_of(initiator, challenge) == Errc::authentication);
  }
  for (std::size_t bit = 0; bit < base::challenge_bytes * 8; bit += 5) {
    Exchange exchange("secret", "secret");
    exchange.challenge[bit / 8] ^= std::byte{1} << (bit % 8);
    CHECK_THROWS_AS(exchange.initiator.answer(exchange.challenge), Error);
  }
  Exchange exchange("secret", "secret");
  for (std::size_t bit = 0; bit < base::proof_bytes * 8; ++bit) {
    base::ProofBytes proof = exchange.initiator.answer(exchange.challenge);
    proof[bit / 8] ^= std::byte{1} << (bit % 8);
    CHECK_FALSE(exchange.acceptor.proves(proof));
  }
}

TEST_CASE("proofs cannot be replayed or reflected", "[handshake]") {
  Exchange first("secret", "secret");
  const base::ProofBytes proof = first.initiator.answer(first.challenge);
  base::Acceptor again(0, "secret");
  again.challenge(first.hello);
  CHECK_FALSE(again.proves(proof));

  base::ProofBytes reflected;
  std::copy_n(first.challenge.begin() + 64, base::proof_bytes, reflected.begin());
  CHECK_FALSE(first.acceptor.proves(reflected));

  base::Initiator fresh(claim, 0, "secret");
  CHECK_THROWS_AS(fresh.answer(first.challenge), Error);
}

TEST_CASE("an initiator knows whom it reached", "[handshake]") {
  Exchange exchange("secret", "secret", 5);
  CHECK_FALSE(exchange.acceptor.meant_for_this_rank());
  CHECK_THROWS_WITH(exchange.initiator.answer(exchange.challenge),
                    Catch::Contains("rank 0 listens there, not rank 5"));
}

TEST_CASE("other versions and other programs are told apart", "[handshake]") {
  base::Initiator initiator(claim, 0, "secret");
  base::HelloBytes hello = initiator.hello();
  hello[8] = std::byte{base::wire_version + 1};
  base::Acceptor acceptor(0, "secret");
  base::ChallengeBytes challenge = acceptor.challenge(hello);
  CHECK(acceptor.version() == base::wire_version + 1);
  CHECK(acceptor.refusal() == base::Verdict::bad_version);

  challenge[8] = std::byte{base::wire_version + 1};
  CHECK_THROWS_WITH(initiator.answer(challenge),
                    Catch::Contains("wire version " + std::to_string(base::wire_version + 1)));
  challenge[0] = std::byte{'H'};
  CHECK_THROWS_WITH(initiator.answer(challenge), Catch::Contains("not Rondo"));
}

TEST_CASE("verdicts survive the wire, others do not", "[handshake]") {
  constexpr auto last = static_cast<std::uint32_t>(base::Verdict::other_user);
  for (std::uint32_t value = 0; value <= last; ++value) {
    const auto verdict = static_cast<base::Verdict>(value);
    CHECK(base::Initiator::read_verdict(base::Acceptor::write_verdict(verdict)) == verdict);
    CHECK_FALSE(base::explain(verdict).empty());
  }
  base::VerdictBytes bytes = base::Acceptor::write_verdict(base::Verdict::welcome);
  bytes[8] = std::byte{last + 1};
  CHECK_THROWS_AS(base::Initiator::read_verdict(bytes), Error);
  bytes = {};
  CHECK_THROWS_AS(base::Initiator::read_verdict(bytes), Error);
}
