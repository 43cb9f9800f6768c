// SPDX-License-Identifier: Apache-2.0
#include "base/frame_tag.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <limits>

#include <rondo/error.h>

#include "base/bytes.h"

namespace rondo::base {
namespace {

constexpr std::size_t nonce_bytes = 12;
// OpenSSL takes lengths as int.
constexpr std::size_t most_at_once = std::size_t{1} << 30;

void check(int result) {
  if (result != 1) throw Error(Errc::system, "OpenSSL cannot compute AES-128-GCM here");
}

unsigned char* plain(std::byte* bytes) noexcept {
  return reinterpret_cast<unsigned char*>(bytes);
}

}  // namespace

void FrameTag::Free::operator()(evp_cipher_ctx_st* context) const noexcept {
  EVP_CIPHER_CTX_free(context);
}

FrameTag::FrameTag(const SessionKey& key) : context_(EVP_CIPHER_CTX_new()) {
  check(context_ != nullptr ? 1 : 0);
  check(EVP_EncryptInit_ex(context_.get(), EVP_aes_128_gcm(), nullptr,
                           reinterpret_cast<const unsigned char*>(key.data()), nullptr));
}

void FrameTag::begin(std::uint64_t ahead) {
  if (number_ >= std::numeric_limits<std::uint64_t>::max() - ahead)
    throw Error(Errc::authentication,
                "the connection has used all numbers of authenticated frames");
  std::array<std::byte, nonce_bytes> nonce{};
  store_little(nonce.data(), number_ + ahead);
  check(EVP_EncryptInit_ex(context_.get(), nullptr, nullptr, nullptr, plain(nonce.data())));
}

void FrameTag::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), most_at_once));
    int written = 0;
    check(EVP_EncryptUpdate(context_.get(), nullptr, &written,
                            reinterpret_cast<const unsigned char*>(part.data()),
                            static_cast<int>(part.size())));
    bytes = bytes.subspan(part.size());
  }
}

Tag FrameTag::end() {
  Tag tag{};
  int written = 0;
  check(EVP_EncryptFinal_ex(context_.get(), plain(tag.data()), &written));
  check(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, static_cast<int>(tag.size()),
                            tag.data()));
  return tag;
}

bool FrameTag::matches(std::span<const std::byte, tag_bytes> tag) {
  const Tag own = end();
  skip(1);
  return CRYPTO_memcmp(own.data(), tag.data(), own.size()) == 0;
}

}  // namespace rondo::base
