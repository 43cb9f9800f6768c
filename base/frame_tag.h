// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

struct evp_cipher_ctx_st;

namespace rondo {

inline constexpr std::size_t tag_bytes = 16;
using Tag = std::array<std::byte, tag_bytes>;
using SessionKey = std::array<std::byte, 16>;

// Why a connection ends whose frames do not have the right tags.
inline constexpr const char* wrong_tag =
    "a message has a wrong tag: something between the two hosts alters the connection or speaks for this "
    "rank";

// The two keys of a connection as one of its ends sees them. See Initiator::agreement().
struct SessionKeys {
  SessionKey sending{}, receiving{};
};

// Makes the tags of one direction of one connection: AES-128-GCM (NIST SP 800-38D) with everything as additional data and no
// plaintext. The nonce is the number of the tag, counted from 0 on both ends: so a frame that was altered, replayed, reordered or
// left out gives another tag. Reentrant. Allocates when it is made, and not after that.
//
//   tag.begin(); tag.add(header); tag.add(payload); const Tag here = tag.end(); ... tag.skip(1);
//
// Wrong: to send two different frames with tags of the same number. skip() must follow the tags that leave the process.
class FrameTag {
 public:
  // Throws Error(system) when OpenSSL has no such cipher; every other member throws it when OpenSSL fails or the numbers run out.
  explicit FrameTag(const SessionKey& key);

  // Starts the tag that comes so many behind the next one. May be called again for a tag that nobody was sent.
  void begin(std::uint64_t ahead = 0);
  void add(std::span<const std::byte> bytes);
  Tag end();
  // True when the tag is end(), in constant time; counts.
  bool matches(std::span<const std::byte, tag_bytes> tag);
  void skip(std::uint64_t tags) noexcept { number_ += tags; }

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const noexcept;
  };
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
  std::uint64_t number_ = 0;
};

}  // namespace rondo
