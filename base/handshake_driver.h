// SPDX-License-Identifier: Apache-2.0
//
// One end's part of a handshake, from its first message to the verdict. Every transport and the
// rendezvous use it. No I/O and no clock: the caller reads and sends the messages and sets a
// deadline.
//
//   HandshakeDriver handshake = HandshakeDriver::connector(claim, peer, secret, terms);
//   for (;;) {
//     send(handshake.output());                        // may be empty
//     if (handshake.awaits() == 0) break;              // over: accepted(), or why() and code()
//     handshake.take(receive(handshake.awaits()));     // exactly that many bytes
//   }
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <rondo/error.h>

#include "base/handshake.h"

namespace rondo::base {

// A buffer of this size holds every message of a handshake.
inline constexpr std::size_t longest_handshake_message = std::max(hello_bytes, challenge_bytes);

// Thread-bound, without locks. After a failure awaits() is 0, and why() and code() say the cause.
class HandshakeDriver {
 public:
  // A function from the caller of take(). It decides about a claim that has been proved, and must
  // check meant_for_this_rank().
  using Admit = std::function<Verdict(const Acceptor&)>;

  // Both throw Error(system) when OpenSSL fails. peer: the rank that the connector means to reach.
  static HandshakeDriver connector(const Claim& claim, std::uint32_t peer, std::string_view secret,
                                   Terms terms = {});
  static HandshakeDriver acceptor(std::uint32_t rank, std::string_view secret, Terms terms = {});

  // Bytes of the message that must come next; 0: the handshake is over.
  std::size_t awaits() const noexcept;
  // Returns what must be sent now, valid until the next take() or refuse().
  std::span<const std::byte> output() const noexcept { return output_; }
  // Takes the next message. A message of another size than awaits() ends the handshake. An acceptor
  // calls `admit` once the claim has been proved. Throws what admit throws, and Error(system) when
  // OpenSSL cannot check the connector's proof.
  void take(std::span<const std::byte> message, const Admit& admit = {});
  // Ends the handshake early with this verdict. For an acceptor only.
  void refuse(Verdict verdict);

  // The verdict was welcome.
  bool accepted() const noexcept { return state_ == State::over && verdict_ == Verdict::welcome; }
  // The cause, in words for a user, when the handshake is over without a welcome. code() is
  // authentication (the secrets or users differ), unsupported (the versions differ), system
  // (OpenSSL fails), or rendezvous.
  const std::string& why() const noexcept { return why_; }
  Errc code() const noexcept { return code_; }
  // The verdict that the acceptor has given; nothing when the handshake ended without one.
  std::optional<Verdict> verdict() const noexcept { return verdict_; }
  // True when the peer has proved its claim, whatever the verdict is. For an acceptor only.
  bool proved() const noexcept { return proved_; }
  // For an acceptor, after the first message.
  const Claim& claim() const noexcept { return acceptor_->claim(); }
  std::uint16_t version() const noexcept { return acceptor_->version(); }
  // Returns what protects the frames that follow. Call it after both ends have proved themselves.
  // Throws Error(system) when OpenSSL fails.
  Agreement agreement() const;

 private:
  enum class State { hello, challenge, proof, verdict, over };

  HandshakeDriver() = default;
  void take_hello(const HelloBytes& hello);
  void take_challenge(const ChallengeBytes& challenge);
  void take_proof(const ProofBytes& proof, const Admit& admit);
  void take_verdict(const VerdictBytes& bytes);
  void end(Verdict verdict);
  void end(Errc code, std::string why);
  template <class Message>
  void say(const Message& message) {
    output_.assign(message.begin(), message.end());
  }

  State state_ = State::over;
  std::optional<Initiator> initiator_;
  std::optional<Acceptor> acceptor_;
  std::vector<std::byte> output_;
  ProofBytes proof_{};
  bool proved_ = false;
  std::optional<Verdict> verdict_;
  Errc code_ = Errc::rendezvous;
  std::string why_;
};

}  // namespace rondo::base
