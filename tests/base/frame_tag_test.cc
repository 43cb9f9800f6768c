// SPDX-License-Identifier: Apache-2.0
#include "base/frame_tag.h"

#include <openssl/core_names.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <cstring>
#include <vector>

#include <rondo/error.h>

#include "base/handshake.h"
#include "catch.h"

using namespace rondo;

namespace {

const base::Claim tagged_claim{base::Purpose::data, 3, 8, 0x1122334455667788u, 1, 2};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

base::Tag tag_of(base::FrameTag& tags, std::string_view text, std::uint64_t ahead = 0) {
  tags.begin(ahead);
  tags.add(bytes_of(text));
  return tags.end();
}

bool accepts(base::FrameTag& tags, std::string_view text, const base::Tag& tag) {
  tags.begin();
  tags.add(bytes_of(text));
  return tags.matches(tag);
}

struct Ends {
  base::Agreement initiator, acceptor;
  base::HelloBytes hello;
  base::ChallengeBytes challenge;
  base::ProofBytes proof;
};

Ends shake_hands(base::Protection of_initiator, base::Protection of_acceptor,
                 std::string_view secret = "secret") {
  base::Initiator initiator(tagged_claim, 0, secret, {.protection = of_initiator});
  base::Acceptor acceptor(0, secret, {.protection = of_acceptor});
  Ends ends;
  ends.hello = initiator.hello();
  ends.challenge = acceptor.challenge(ends.hello);
  ends.proof = initiator.answer(ends.challenge);
  REQUIRE(acceptor.proves(ends.proof));
  ends.initiator = initiator.agreement();
  ends.acceptor = acceptor.agreement(ends.proof);
  return ends;
}

// HKDF as OpenSSL computes it.
base::SessionKey hkdf(std::string_view secret, const std::vector<std::byte>& salt,
                      const std::vector<std::byte>& info) {
  EVP_KDF* const kdf = EVP_KDF_fetch(nullptr, "HKDF", nullptr);
  EVP_KDF_CTX* const context = EVP_KDF_CTX_new(kdf);
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<char*>(secret.data()),
                                        secret.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, const_cast<std::byte*>(salt.data()),
                                        salt.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, const_cast<std::byte*>(info.data()),
                                        info.size()),
      OSSL_PARAM_construct_end()};
  base::SessionKey key{};
  CHECK(EVP_KDF_derive(context, reinterpret_cast<unsigned char*>(key.data()), key.size(),
                       parameters) == 1);
  EVP_KDF_CTX_free(context);
  EVP_KDF_free(kdf);
  return key;
}

template <class Part>
void append(std::vector<std::byte>& to, const Part& part) {
  to.insert(to.end(), part.begin(), part.end());
}

}  // namespace

TEST_CASE("the tag is that of AES-128-GCM", "[frame_tag]") {
  // Test case 1 of the GCM specification (McGrew, Viega): key, nonce, text and additional data are
  // all zero or empty.
  constexpr unsigned char expected[] = {0x58, 0xe2, 0xfc, 0xce, 0xfa, 0x7e, 0x30, 0x61,
                                        0x36, 0x7f, 0x1d, 0x57, 0xa4, 0xe7, 0x45, 0x5a};
  base::FrameTag tags(base::SessionKey{});
  CHECK(std::memcmp(tag_of(tags, "").data(), expected, sizeof expected) == 0);
}

TEST_CASE("frames that are altered, replayed, left out or reordered are noticed", "[frame_tag]") {
  const base::SessionKey key{std::byte{7}};
  base::FrameTag sender(key), receiver(key);
  const base::Tag first = tag_of(sender, "first");
  CHECK(tag_of(sender, "first") == first);  // it was not sent, so its number is used again
  const base::Tag second = tag_of(sender, "second", 1);
  sender.skip(2);
  SECTION("in order") {
    CHECK(accepts(receiver, "first", first));
    CHECK(accepts(receiver, "second", second));
    CHECK(accepts(receiver, "third", tag_of(sender, "third")));
  }
  SECTION("altered") {
    CHECK_FALSE(accepts(receiver, "fIrst", first));
  }
  SECTION("replayed") {
    CHECK(accepts(receiver, "first", first));
    CHECK_FALSE(accepts(receiver, "first", first));
  }
  SECTION("left out") {
    CHECK_FALSE(accepts(receiver, "second", second));
  }
  SECTION("of another key") {
    base::FrameTag other(base::SessionKey{std::byte{8}});
    CHECK_FALSE(accepts(other, "first", first));
  }
}

TEST_CASE("both ends have the same keys, and every connection has its own", "[handshake]") {
  const Ends one = shake_hands(base::Protection::headers, base::Protection::headers);
  const Ends other = shake_hands(base::Protection::headers, base::Protection::headers);
  CHECK(one.initiator.keys.sending == one.acceptor.keys.receiving);
  CHECK(one.initiator.keys.receiving == one.acceptor.keys.sending);
  CHECK(one.initiator.keys.sending != one.initiator.keys.receiving);
  CHECK(one.initiator.keys.sending != other.initiator.keys.sending);
  CHECK(one.initiator.keys.sending != base::SessionKey{});
}

TEST_CASE("the keys are those of HKDF over everything said", "[handshake]") {
  const Ends ends = shake_hands(base::Protection::headers, base::Protection::none);
  std::vector<std::byte> salt(ends.hello.begin() + 48, ends.hello.begin() + 80);
  salt.insert(salt.end(), ends.challenge.begin() + 32, ends.challenge.begin() + 64);
  for (const bool initiator : {true, false}) {
    std::vector<std::byte> info;
    append(info,
           bytes_of(initiator ? "rondo frames of the initiator" : "rondo frames of the acceptor"));
    append(info, ends.hello);
    append(info, ends.challenge);
    append(info, ends.proof);
    CHECK(hkdf("secret", salt, info) ==
          (initiator ? ends.initiator.keys.sending : ends.initiator.keys.receiving));
  }
}

TEST_CASE("the greater protection holds, and needs a secret", "[handshake]") {
  using enum base::Protection;
  for (const base::Protection one : {none, headers, payload})
    for (const base::Protection other : {none, headers, payload}) {
      const Ends ends = shake_hands(one, other);
      CHECK(ends.initiator.protection == std::max(one, other));
      CHECK(ends.acceptor.protection == std::max(one, other));
    }
  CHECK(shake_hands(payload, payload, "").initiator.protection == none);
  CHECK(shake_hands(payload, payload, "").acceptor.protection == none);
}

TEST_CASE("nobody between the ends can lower the protection", "[handshake]") {
  constexpr std::size_t hello_flags = 40, challenge_flags = 16;
  base::Initiator initiator(tagged_claim, 0, "secret", {.protection = base::Protection::payload});
  base::Acceptor acceptor(0, "secret", {.protection = base::Protection::headers});
  SECTION("in the hello") {
    base::HelloBytes hello = initiator.hello();
    REQUIRE(hello[hello_flags] == std::byte{1 | 2 << 2});
    hello[hello_flags] = std::byte{1};
    CHECK_THROWS_WITH(initiator.answer(acceptor.challenge(hello)), Catch::Contains("secret"));
  }
  SECTION("in the challenge") {
    base::ChallengeBytes challenge = acceptor.challenge(initiator.hello());
    REQUIRE(challenge[challenge_flags] == std::byte{1 | 1 << 2});
    challenge[challenge_flags] = std::byte{1};
    CHECK_THROWS_WITH(initiator.answer(challenge), Catch::Contains("secret"));
  }
}
