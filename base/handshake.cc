// SPDX-License-Identifier: Apache-2.0
//
// The handshake of every connection. All integers are little endian, all fields have a fixed place,
// reserved bytes are zero.
//
//   hello     = "rondohel" version:u16 purpose:u16 rank:u32 peer:u32 size:u32 job:u64 lane:u32
//               connection:u32 flags:u32 reserved:u32 nonce:32 bytes reserved:16 bytes
//                                                                       ; 96 bytes, initiator
//   challenge = "rondocha" version:u16 reserved:u16 rank:u32 flags:u32 reserved:12 bytes
//               nonce:32 bytes proof:32 bytes                           ; 96 bytes, acceptor
//   proof     = 32 bytes                                                ; initiator
//   verdict   = "rondover" verdict:u32 reserved:u32                     ; 16 bytes, acceptor
//
//   challenge.proof = HMAC-SHA256(secret, "rondo acceptor 1" hello challenge[0..64))
//   proof           = HMAC-SHA256(secret, "rondo initiator 1" hello challenge)
//   flags: bit 0 = the sender has a job secret (an empty one is an empty key);
//          bit 1 = it has none and uses the key of its user;
//          bits 2 and 3 = the protection that the sender wants for the frames that follow
//                         (0 none, 1 headers, 2 payload)
//
//   PRK  = HMAC-SHA256(both nonces, secret)                             ; HKDF, RFC 5869
//   key  = HMAC-SHA256(PRK, "rondo frames of the " role hello challenge proof 0x01)[0..16)
//                                                       ; role = "initiator" | "acceptor"
//
// Each key serves the frames of one direction (base/frame_tag.h). Keys are derived from the secret
// and both nonces, so each connection has its own. They are derived from the whole handshake too,
// and from the secret, so a relay that passes the handshake on cannot make a frame.
//
// Each proof covers all messages before it and the role of its sender. So nobody can replay it
// (both nonces are fresh), reflect it (the roles differ) or use it for another rank, lane or job.
// An initiator that refuses the acceptor's challenge sends 32 zero bytes instead of a proof, so
// that the acceptor learns why the connection ends. Every version keeps the sizes of the messages
// and the place of magic and version, so that two versions can tell each other apart.
#include "base/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>

#include <rondo/error.h>

#include "base/bytes.h"

namespace rondo::base {
namespace {

using Nonce = std::array<std::byte, 32>;

constexpr std::string_view hello_magic = "rondohel", challenge_magic = "rondocha",
                           verdict_magic = "rondover";
constexpr std::uint32_t has_secret = 1, proves_user = 2;
constexpr std::uint32_t protection_shift = 2, protection_mask = 3;
constexpr std::size_t hello_nonce = 48, challenge_nonce = 32, challenge_proof = 64;
static_assert(hello_nonce + sizeof(Nonce) + 16 == hello_bytes);
static_assert(challenge_nonce + sizeof(Nonce) == challenge_proof);
static_assert(challenge_proof + proof_bytes == challenge_bytes);

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Nonce fresh_nonce() {
  Nonce nonce;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), static_cast<int>(nonce.size())) !=
      1)
    throw Error(Errc::system, "no random bytes from OpenSSL for a handshake nonce");
  return nonce;
}

struct FreeMac {
  void operator()(EVP_MAC* mac) const noexcept { EVP_MAC_free(mac); }
  void operator()(EVP_MAC_CTX* context) const noexcept { EVP_MAC_CTX_free(context); }
};
using MacContext = std::unique_ptr<EVP_MAC_CTX, FreeMac>;

// A context without a key, to be copied. OpenSSL looks algorithms up by name, which takes longer
// than the hash of a handshake, so that is done once.
const MacContext& hmac_sha256() {
  static const MacContext context = [] {
    const std::unique_ptr<EVP_MAC, FreeMac> mac(EVP_MAC_fetch(nullptr, "HMAC", nullptr));
    MacContext made(mac ? EVP_MAC_CTX_new(mac.get()) : nullptr);
    std::string digest = "SHA256";
    const OSSL_PARAM settings[] = {OSSL_PARAM_construct_utf8_string("digest", digest.data(), 0),
                                   OSSL_PARAM_construct_end()};
    if (!made || EVP_MAC_CTX_set_params(made.get(), settings) != 1)
      throw Error(Errc::system, "OpenSSL has no HMAC-SHA256 here");
    return made;
  }();
  return context;
}

ProofBytes hmac(std::string_view secret, std::string_view role, std::span<const std::byte> first,
                std::span<const std::byte> second) {
  if (secret.size() > INT_MAX)
    throw Error(Errc::invalid_argument, "the job secret is longer than 2 GiB");
  const MacContext context(EVP_MAC_CTX_dup(hmac_sha256().get()));
  // For OpenSSL a null key means "the previous key".
  const char* const key = secret.empty() ? "" : secret.data();
  bool done = context && EVP_MAC_init(context.get(), reinterpret_cast<const unsigned char*>(key),
                                      secret.size(), nullptr) == 1;
  for (const auto part : {bytes_of(role), first, second})
    done =
        done && EVP_MAC_update(context.get(), reinterpret_cast<const unsigned char*>(part.data()),
                               part.size()) == 1;
  ProofBytes proof;
  std::size_t written = 0;
  done = done && EVP_MAC_final(context.get(), reinterpret_cast<unsigned char*>(proof.data()),
                               &written, proof.size()) == 1;
  if (!done || written != proof.size())
    throw Error(Errc::system, "OpenSSL cannot compute HMAC-SHA256");
  return proof;
}

ProofBytes acceptor_proof(std::string_view secret, const HelloBytes& hello,
                          const ChallengeBytes& challenge) {
  return hmac(secret, "rondo acceptor 1", hello, std::span(challenge).first(challenge_proof));
}

ProofBytes initiator_proof(std::string_view secret, const HelloBytes& hello,
                           const ChallengeBytes& challenge) {
  return hmac(secret, "rondo initiator 1", hello, challenge);
}

bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

bool starts_with(std::span<const std::byte> bytes, std::string_view magic) noexcept {
  return bytes.size() >= magic.size() &&
         std::ranges::equal(bytes.first(magic.size()), bytes_of(magic));
}

template <std::size_t size>
std::array<std::byte, size> to_array(std::vector<std::byte> bytes) {
  std::array<std::byte, size> array{};
  std::copy_n(bytes.begin(), std::min(size, bytes.size()), array.begin());
  return array;
}

std::uint32_t flags_of(std::string_view secret, const Terms& terms) noexcept {
  if (secret.empty()) return 0;
  return (terms.secret_of == SecretOf::user ? proves_user : has_secret) |
         static_cast<std::uint32_t>(terms.protection) << protection_shift;
}

Protection agree(std::uint32_t mine, std::uint32_t theirs) noexcept {
  const auto wanted = [](std::uint32_t flags) {
    return std::min(flags >> protection_shift & protection_mask,
                    static_cast<std::uint32_t>(Protection::payload));
  };
  return static_cast<Protection>(std::max(wanted(mine), wanted(theirs)));
}

SessionKey session_key(std::string_view secret, std::string_view role, const HelloBytes& hello,
                       const ChallengeBytes& challenge, const ProofBytes& proof) {
  std::array<char, 2 * sizeof(Nonce)> salt;
  std::memcpy(salt.data(), hello.data() + hello_nonce, sizeof(Nonce));
  std::memcpy(salt.data() + sizeof(Nonce), challenge.data() + challenge_nonce, sizeof(Nonce));
  const ProofBytes random = hmac({salt.data(), salt.size()}, secret, {}, {});
  std::array<std::byte, challenge_bytes + proof_bytes + 1> rest;
  std::ranges::copy(challenge, rest.begin());
  std::ranges::copy(proof, rest.begin() + challenge_bytes);
  rest.back() = std::byte{1};
  const std::string text = "rondo frames of the " + std::string(role);
  const ProofBytes whole =
      hmac({reinterpret_cast<const char*>(random.data()), random.size()}, text, hello, rest);
  SessionKey key;
  std::copy_n(whole.begin(), key.size(), key.begin());
  return key;
}

HelloBytes write_hello(const Claim& claim, std::uint32_t peer, std::uint32_t flags,
                       const Nonce& nonce) {
  Writer writer;
  writer.put_bytes(bytes_of(hello_magic));
  writer.put(wire_version);
  writer.put(static_cast<std::uint16_t>(claim.purpose));
  writer.put(claim.rank);
  writer.put(peer);
  writer.put(claim.size);
  writer.put(claim.job);
  writer.put(claim.lane);
  writer.put(claim.connection);
  writer.put(flags);
  writer.put(std::uint32_t{0});
  writer.put_bytes(nonce);
  return to_array<hello_bytes>(writer.take());
}

}  // namespace

namespace {

struct VerdictRow {
  const char* words;
  Errc code = Errc::rendezvous;
};

// By value.
constexpr VerdictRow verdict_rows[] = {
    {"welcome"},
    {"the job secrets differ: give all ranks the same RONDO_SECRET", Errc::authentication},
    {"the wire versions differ: run the same version of Rondo on all ranks", Errc::unsupported},
    {"the ranks disagree about the number of ranks: give all the same size"},
    {"the rank is not one that can connect here: ranks go from 0 to size - 1, each once"},
    {"a process with the same rank is there already: start each rank once"},
    {"the other end belongs to another job"},
    {"there is such a connection between the two ranks already"},
    {"a job secret is needed: set RONDO_SECRET to the same value on all ranks",
     Errc::authentication},
    {"the two ends run as different users, or with different XDG_RUNTIME_DIR, and no job secret is "
     "set: start all ranks as one user, or set RONDO_SECRET to the same value on all ranks",
     Errc::authentication}};
static_assert(std::size(verdict_rows) == static_cast<std::size_t>(Verdict::other_user) + 1);

}  // namespace

std::string explain(Verdict verdict) {
  const auto value = static_cast<std::uint32_t>(verdict);
  return value < std::size(verdict_rows) ? verdict_rows[value].words
                                         : "unknown verdict " + std::to_string(value);
}

Errc error_of(Verdict verdict) noexcept {
  const auto value = static_cast<std::uint32_t>(verdict);
  return value < std::size(verdict_rows) ? verdict_rows[value].code : Errc::rendezvous;
}

Initiator::Initiator(const Claim& claim, std::uint32_t peer, std::string_view secret, Terms terms)
    : claim_(claim), peer_(peer), secret_(secret), terms_(terms), nonce_(fresh_nonce()) {}

HelloBytes Initiator::hello() const {
  return write_hello(claim_, peer_, flags_of(secret_, terms_), nonce_);
}

ProofBytes Initiator::answer(const ChallengeBytes& challenge) {
  Reader reader(challenge);
  reader.get_bytes(challenge_magic.size());
  const auto version = reader.get<std::uint16_t>();
  reader.get<std::uint16_t>();
  const auto rank = reader.get<std::uint32_t>();
  const auto flags = reader.get<std::uint32_t>();
  if (!starts_with(challenge, challenge_magic))
    throw Error(Errc::rendezvous,
                "what listens there is not Rondo: its answer to the handshake is something else");
  if (version != wire_version)
    throw Error(Errc::unsupported, "the other end speaks wire version " + std::to_string(version) +
                                       ", this one " + std::to_string(wire_version) +
                                       ": run the same version of Rondo on all ranks");
  const HelloBytes said = hello();
  if (!equal_in_constant_time(acceptor_proof(secret_, said, challenge),
                              std::span(challenge).subspan(challenge_proof))) {
    const std::uint32_t mine = flags_of(secret_, terms_);
    const bool needed = (mine & has_secret) == 0 && (flags & has_secret) != 0;
    const bool user = (mine & flags & proves_user) != 0;
    throw Error(Errc::authentication, explain(needed ? Verdict::secret_needed
                                              : user ? Verdict::other_user
                                                     : Verdict::bad_secret));
  }
  if (rank != peer_)
    throw Error(Errc::rendezvous, "rank " + std::to_string(rank) + " listens there, not rank " +
                                      std::to_string(peer_));
  protection_ = agree(flags_of(secret_, terms_), secret_.empty() ? 0 : flags);
  challenge_ = challenge;
  proof_ = initiator_proof(secret_, said, challenge);
  return proof_;
}

Agreement Initiator::agreement() const {
  if (protection_ == Protection::none) return {};
  const HelloBytes said = hello();
  return {protection_,
          {session_key(secret_, "initiator", said, challenge_, proof_),
           session_key(secret_, "acceptor", said, challenge_, proof_)}};
}

Verdict Initiator::read_verdict(const VerdictBytes& bytes) {
  Reader reader(bytes);
  reader.get_bytes(verdict_magic.size());
  const auto value = reader.get<std::uint32_t>();
  if (!starts_with(bytes, verdict_magic) || value > static_cast<std::uint32_t>(Verdict::other_user))
    throw Error(Errc::rendezvous,
                "the other end ended the handshake with something that is not a verdict");
  return static_cast<Verdict>(value);
}

Acceptor::Acceptor(std::uint32_t rank, std::string_view secret, Terms terms)
    : rank_(rank), secret_(secret), terms_(terms), nonce_(fresh_nonce()) {}

ChallengeBytes Acceptor::challenge(const HelloBytes& hello) {
  if (!starts_with(hello, hello_magic))
    throw Error(Errc::rendezvous, "what connected is not Rondo: its first bytes are not a hello");
  Reader reader(hello);
  reader.get_bytes(hello_magic.size());
  version_ = reader.get<std::uint16_t>();
  claim_.purpose = static_cast<Purpose>(reader.get<std::uint16_t>());
  claim_.rank = reader.get<std::uint32_t>();
  const auto peer = reader.get<std::uint32_t>();
  claim_.size = reader.get<std::uint32_t>();
  claim_.job = reader.get<std::uint64_t>();
  claim_.lane = reader.get<std::uint32_t>();
  claim_.connection = reader.get<std::uint32_t>();
  const auto flags = reader.get<std::uint32_t>();
  peer_has_secret_ = (flags & has_secret) != 0;
  peer_proves_user_ = (flags & proves_user) != 0;
  protection_ = agree(flags_of(secret_, terms_), secret_.empty() ? 0 : flags);
  hello_ = hello;
  meant_for_this_rank_ = peer == rank_;

  Writer writer;
  writer.put_bytes(bytes_of(challenge_magic));
  writer.put(wire_version);
  writer.put(std::uint16_t{0});
  writer.put(rank_);
  writer.put(flags_of(secret_, terms_));
  writer.put(std::uint32_t{0});
  writer.put(std::uint64_t{0});
  writer.put_bytes(nonce_);
  challenge_ = to_array<challenge_bytes>(writer.take());
  const ProofBytes proof = acceptor_proof(secret_, hello_, challenge_);
  std::ranges::copy(proof, challenge_.begin() + challenge_proof);
  return challenge_;
}

bool Acceptor::proves(const ProofBytes& proof) const {
  return equal_in_constant_time(initiator_proof(secret_, hello_, challenge_), proof);
}

Verdict Acceptor::refusal() const noexcept {
  if (version_ != wire_version) return Verdict::bad_version;
  const std::uint32_t mine = flags_of(secret_, terms_);
  if ((mine & has_secret) != 0 && !peer_has_secret_) return Verdict::secret_needed;
  return (mine & proves_user) != 0 && peer_proves_user_ ? Verdict::other_user : Verdict::bad_secret;
}

Agreement Acceptor::agreement(const ProofBytes& proof) const {
  if (protection_ == Protection::none) return {};
  return {protection_,
          {session_key(secret_, "acceptor", hello_, challenge_, proof),
           session_key(secret_, "initiator", hello_, challenge_, proof)}};
}

VerdictBytes Acceptor::write_verdict(Verdict verdict) {
  Writer writer;
  writer.put_bytes(bytes_of(verdict_magic));
  writer.put(static_cast<std::uint32_t>(verdict));
  return to_array<verdict_bytes>(writer.take());
}

}  // namespace rondo::base
