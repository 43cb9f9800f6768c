// SPDX-License-Identifier: Apache-2.0
#include "base/handshake_driver.h"

#include "catch.h"

using namespace rondo;

namespace {

using base::HandshakeDriver;

const base::Claim own_claim{base::Purpose::data, 3, 8, 7, 1, 2};

// Carries messages until one end awaits nothing. `verdict` is given to a proved claim.
void carry(HandshakeDriver& connector, HandshakeDriver& acceptor,
           base::Verdict verdict = base::Verdict::welcome) {
  const auto admit = [&](const base::Acceptor& claimed) {
    CHECK(claimed.meant_for_this_rank());
    CHECK(claimed.claim().job == 7);
    return verdict;
  };
  HandshakeDriver *from = &connector, *to = &acceptor;
  for (int messages = 0; messages < 4 && to->awaits() != 0; ++messages) {
    const std::vector<std::byte> message(from->output().begin(), from->output().end());
    REQUIRE(message.size() == to->awaits());
    to->take(message, admit);
    std::swap(from, to);
  }
}

}  // namespace

TEST_CASE("a handshake is driven to its end by its messages alone", "[handshake]") {
  auto connector = HandshakeDriver::connector(own_claim, 0, "secret",
                                              {base::SecretOf::job, base::Protection::headers});
  auto acceptor = HandshakeDriver::acceptor(0, "secret");
  CHECK(connector.awaits() == base::challenge_bytes);
  CHECK(acceptor.awaits() == base::hello_bytes);
  CHECK(acceptor.output().empty());
  carry(connector, acceptor);
  for (const HandshakeDriver* one : {&connector, &acceptor}) {
    CHECK(one->awaits() == 0);
    CHECK(one->accepted());
    CHECK(one->agreement().protection == base::Protection::headers);
  }
  CHECK(acceptor.proved());
  CHECK(acceptor.claim().rank == 3);
  CHECK(connector.agreement().keys.sending == acceptor.agreement().keys.receiving);
}

TEST_CASE("both ends of a handshake know the verdict", "[handshake]") {
  auto connector = HandshakeDriver::connector(own_claim, 0, "secret");
  auto acceptor = HandshakeDriver::acceptor(0, "secret");
  carry(connector, acceptor, base::Verdict::doubled_rank);
  for (const HandshakeDriver* one : {&connector, &acceptor}) {
    CHECK(one->awaits() == 0);
    CHECK_FALSE(one->accepted());
    CHECK(one->verdict() == base::Verdict::doubled_rank);
    CHECK(one->code() == Errc::rendezvous);
    CHECK(one->why() == base::explain(base::Verdict::doubled_rank));
  }
  CHECK(acceptor.proved());
}

TEST_CASE("a connector with another secret tells the acceptor so", "[handshake]") {
  auto connector = HandshakeDriver::connector(own_claim, 0, "one");
  auto acceptor = HandshakeDriver::acceptor(0, "another");
  carry(connector, acceptor);  // the last message is the proof of zeros
  CHECK(connector.awaits() == 0);
  CHECK_FALSE(connector.verdict());
  CHECK(connector.code() == Errc::authentication);
  CHECK_FALSE(acceptor.proved());
  CHECK(acceptor.verdict() == base::Verdict::bad_secret);
  CHECK(acceptor.output().size() == base::verdict_bytes);
}

TEST_CASE("bytes that are no handshake end it without an answer", "[handshake]") {
  auto acceptor = HandshakeDriver::acceptor(0, "secret");
  const std::vector<std::byte> bytes(GENERATE(std::size_t{95}, base::hello_bytes));
  acceptor.take(bytes);
  CHECK(acceptor.awaits() == 0);
  CHECK(acceptor.output().empty());
  CHECK_FALSE(acceptor.verdict());
  CHECK_FALSE(acceptor.accepted());
  CHECK(acceptor.code() == Errc::rendezvous);
  CHECK(acceptor.why().find("not Rondo") != std::string::npos);
  // The handshake is over, so it takes no message.
  acceptor.take(bytes);
  CHECK(acceptor.output().empty());
}
