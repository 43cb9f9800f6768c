// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

struct evp_cipher_ctx_st;

namespace rondo::base {

inline constexpr std::size_t tag_bytes = 16;
using Tag = std::array<std::byte, tag_bytes>;
using SessionKey = std::array<std::byte, 16>;

// The cause that is reported when a connection ends because a frame has a wrong tag.
inline constexpr const char* wrong_tag =
    "a message has a wrong tag: something between the two hosts alters the connection or speaks "
    "for this "
    "rank";

// The two keys of a connection as one of its ends sees them. See Initiator::agreement().
struct SessionKeys {
  SessionKey sending{}, receiving{};
};

// Makes the tags of one direction of one connection: AES-128-GCM (NIST SP 800-38D), with the frame
// as additional data and no plaintext. The nonce is the number of the tag, which both ends count
// from 0. So a frame that was altered, replayed, reordered or left out gives another tag.
// Reentrant, without locks. Only the constructor allocates.
//
//   tag.begin(); tag.add(header); tag.add(payload); const Tag here = tag.end(); ... tag.skip(1);
//
// Wrong: two different frames sent with tags of the same number. Call skip() once the tags have
// left the process.
class FrameTag {
 public:
  // Throws Error(system) when OpenSSL has no such cipher. begin(), add(), end() and matches() throw
  // it when OpenSSL fails.
  explicit FrameTag(const SessionKey& key);

  // Starts the next tag, or the one `ahead` numbers after it. May be called again for a tag that
  // was not sent. Throws Error(authentication) when the numbers run out.
  void begin(std::uint64_t ahead = 0);
  void add(std::span<const std::byte> bytes);
  Tag end();
  // Calls end() and compares the result with `tag` in constant time. The number counts as used,
  // whether they are equal or not.
  bool matches(std::span<const std::byte, tag_bytes> tag);
  void skip(std::uint64_t tags) noexcept { number_ += tags; }

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const noexcept;
  };
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
  std::uint64_t number_ = 0;
};

}  // namespace rondo::base
