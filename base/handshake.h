// SPDX-License-Identifier: Apache-2.0
//
// Both ends of a new connection prove that they know the secret before either keeps anything for
// its peer. No I/O here: the caller moves messages of fixed size, hello -> challenge -> proof ->
// verdict. The grammar is in handshake.cc and docs/reference/wire.md.
//
// Initiator and Acceptor are reentrant and take no locks. Their constructors, and every member that
// computes a proof or a key, throw Error(system) when OpenSSL fails.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <rondo/error.h>

#include "base/frame_tag.h"

namespace rondo::base {

inline constexpr std::uint16_t wire_version = 5;
inline constexpr std::size_t hello_bytes = 96, challenge_bytes = 96, proof_bytes = 32,
                             verdict_bytes = 16;
using HelloBytes = std::array<std::byte, hello_bytes>;
using ChallengeBytes = std::array<std::byte, challenge_bytes>;
using ProofBytes = std::array<std::byte, proof_bytes>;
using VerdictBytes = std::array<std::byte, verdict_bytes>;

enum class Purpose : std::uint16_t { rendezvous = 1, data = 2, memory = 3 };

// An initiator that refuses the acceptor sends this instead of its proof.
inline constexpr ProofBytes refused_proof{};

// Whom the secret identifies: the job, or this user on this host.
enum class SecretOf { job, user };

// Protects the frames that follow the handshake with keys derived from it: by nothing, by a tag for
// each header, or by a tag for each payload too. If the ends want different protection, the
// stronger one holds.
enum class Protection : std::uint32_t { none, headers, payload };

// The result of the handshake as one end sees it. It has keys only with protection.
struct Agreement {
  Protection protection = Protection::none;
  SessionKeys keys;
};

// Each end brings these into the handshake, the initiator beside its claim. The proofs cover the
// terms, so a relay cannot lower the protection.
struct Terms {
  SecretOf secret_of = SecretOf::job;
  Protection protection = Protection::none;
};

// The initiator claims this about itself in its hello. job is 0 until the rendezvous has assigned
// it.
struct Claim {
  Purpose purpose = Purpose::rendezvous;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint64_t job = 0;
  std::uint32_t lane = 0;
  std::uint32_t connection = 0;
};

enum class Verdict : std::uint32_t {
  welcome = 0,
  bad_secret,
  bad_version,
  bad_size,
  bad_rank,
  doubled_rank,
  wrong_job,
  duplicate_link,
  secret_needed,
  other_user,
};
// Cause and remedy: "the job secrets differ: give all ranks the same RONDO_SECRET".
std::string explain(Verdict verdict);
// The code of the error that the verdict is for the connector.
Errc error_of(Verdict verdict) noexcept;

// The side that connects (the connector). One object for each connection.
class Initiator {
 public:
  // peer: the rank that this end means to reach.
  Initiator(const Claim& claim, std::uint32_t peer, std::string_view secret, Terms terms = {});
  HelloBytes hello() const;
  // Checks the acceptor's proof and returns the proof of this end. Throws Error: authentication
  // when the acceptor's proof is wrong, unsupported for another version, rendezvous when another
  // rank answers or something that is not Rondo. After an error the caller may send refused_proof,
  // so that the acceptor learns why the connection ends.
  ProofBytes answer(const ChallengeBytes& challenge);
  // Throws Error(rendezvous) when the bytes are not a verdict.
  static Verdict read_verdict(const VerdictBytes& bytes);
  // After answer(). Without a secret there is no protection.
  Agreement agreement() const;

 private:
  Claim claim_;
  std::uint32_t peer_;
  std::string secret_;
  Terms terms_;
  Protection protection_ = Protection::none;
  std::array<std::byte, 32> nonce_;
  ChallengeBytes challenge_{};
  ProofBytes proof_{};
};

// The side that listens. One object for each connection.
class Acceptor {
 public:
  Acceptor(std::uint32_t rank, std::string_view secret, Terms terms = {});
  // Throws Error(rendezvous) when the bytes are not a hello of Rondo; the caller then closes the
  // connection without an answer. A hello of another version gets an answer: see version().
  ChallengeBytes challenge(const HelloBytes& hello);
  // The claim of the hello. It is proved only after proves() has returned true.
  const Claim& claim() const noexcept { return claim_; }
  std::uint16_t version() const noexcept { return version_; }
  bool meant_for_this_rank() const noexcept { return meant_for_this_rank_; }
  bool peer_has_secret() const noexcept { return peer_has_secret_; }
  bool proves(const ProofBytes& proof) const;  // constant time
  // The verdict for a wrong proof: the versions differ, the secrets differ, the peer has none, or
  // it is another user.
  Verdict refusal() const noexcept;
  static VerdictBytes write_verdict(Verdict verdict);
  // Like Initiator::agreement(); call it after proves(proof) has returned true.
  Agreement agreement(const ProofBytes& proof) const;

 private:
  std::uint32_t rank_;
  std::string secret_;
  Terms terms_;
  Protection protection_ = Protection::none;
  Claim claim_;
  std::uint16_t version_ = 0;
  bool meant_for_this_rank_ = false;
  bool peer_has_secret_ = false, peer_proves_user_ = false;
  std::array<std::byte, 32> nonce_;
  HelloBytes hello_{};
  ChallengeBytes challenge_{};
};

}  // namespace rondo::base
