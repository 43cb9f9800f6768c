// SPDX-License-Identifier: Apache-2.0
#include "base/handshake_driver.h"

#include <algorithm>

namespace rondo::base {
namespace {

// bytes: at least as many as Message has.
template <class Message>
Message copy(std::span<const std::byte> bytes) {
  Message message;
  std::ranges::copy(bytes.first(message.size()), message.begin());
  return message;
}

}  // namespace

HandshakeDriver HandshakeDriver::connector(const Claim& claim, std::uint32_t peer,
                                           std::string_view secret, Terms terms) {
  HandshakeDriver driver;
  driver.initiator_.emplace(claim, peer, secret, terms);
  driver.state_ = State::challenge;
  driver.say(driver.initiator_->hello());
  return driver;
}

HandshakeDriver HandshakeDriver::acceptor(std::uint32_t rank, std::string_view secret,
                                          Terms terms) {
  HandshakeDriver driver;
  driver.acceptor_.emplace(rank, secret, terms);
  driver.state_ = State::hello;
  return driver;
}

std::size_t HandshakeDriver::awaits() const noexcept {
  switch (state_) {
    case State::hello:
      return hello_bytes;
    case State::challenge:
      return challenge_bytes;
    case State::proof:
      return proof_bytes;
    case State::verdict:
      return verdict_bytes;
    case State::over:
      break;
  }
  return 0;
}

void HandshakeDriver::take(std::span<const std::byte> message, const Admit& admit) {
  output_.clear();
  if (message.size() != awaits())
    return end(Errc::rendezvous, "a message of its handshake has a wrong size: it is not Rondo");
  switch (state_) {
    case State::hello:
      return take_hello(copy<HelloBytes>(message));
    case State::challenge:
      return take_challenge(copy<ChallengeBytes>(message));
    case State::proof:
      return take_proof(copy<ProofBytes>(message), admit);
    case State::verdict:
      return take_verdict(copy<VerdictBytes>(message));
    case State::over:
      break;
  }
}

void HandshakeDriver::refuse(Verdict verdict) {
  say(Acceptor::write_verdict(verdict));
  end(verdict);
}

void HandshakeDriver::take_hello(const HelloBytes& hello) {
  try {
    say(acceptor_->challenge(hello));
    state_ = State::proof;
  } catch (const Error& error) {
    end(static_cast<Errc>(error.code().value()), error.what());
  }
}

void HandshakeDriver::take_challenge(const ChallengeBytes& challenge) {
  try {
    proof_ = initiator_->answer(challenge);
    say(proof_);
    state_ = State::verdict;
  } catch (const Error& error) {
    // Tells the acceptor that this end refuses it.
    say(refused_proof);
    end(static_cast<Errc>(error.code().value()), error.what());
  }
}

void HandshakeDriver::take_proof(const ProofBytes& proof, const Admit& admit) {
  proof_ = proof;
  proved_ = acceptor_->version() == wire_version && acceptor_->proves(proof);
  refuse(proved_ ? admit(*acceptor_) : acceptor_->refusal());
}

void HandshakeDriver::take_verdict(const VerdictBytes& bytes) {
  try {
    end(Initiator::read_verdict(bytes));
  } catch (const Error& error) {
    end(Errc::rendezvous, error.what());
  }
}

void HandshakeDriver::end(Verdict verdict) {
  verdict_ = verdict;
  end(error_of(verdict), explain(verdict));
}

void HandshakeDriver::end(Errc code, std::string why) {
  state_ = State::over;
  code_ = code;
  why_ = std::move(why);
}

Agreement HandshakeDriver::agreement() const {
  return initiator_ ? initiator_->agreement() : acceptor_->agreement(proof_);
}

}  // namespace rondo::base
