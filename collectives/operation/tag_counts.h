// SPDX-License-Identifier: Apache-2.0
//
// Counts operations and waits by the tag of the caller (OpOptions::tag), for the metrics. The first
// 32 tags have an entry each; later ones share the last. Nothing is allocated.
//
// Threads: thread-bound to whoever holds the engine's lock.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include <rondo/types.h>

#include "base/clock.h"

namespace rondo::operation {

class TagCounts {
 public:
  static constexpr std::size_t most_tags = 32, tag_bytes = 32;
  // By Collective; the last one counts calls of messages.
  static constexpr std::size_t kinds = collective_count + 1;
  struct Entry {
    char tag[tag_bytes] = {};
    std::array<std::uint64_t, kinds> operations{};
    std::array<nanoseconds, wait_cause_count> waited{};
  };

  // tag: ends with 0. Most calls have the tag of the one before.
  Entry& of(const char (&tag)[tag_bytes]) noexcept {
    if (newest_ != last && std::strcmp(entries_[newest_].tag, tag) == 0) return entries_[newest_];
    for (newest_ = 0; newest_ < used_; ++newest_)
      if (std::strcmp(entries_[newest_].tag, tag) == 0) return entries_[newest_];
    if (used_ == last) return entries_[newest_ = last];
    std::memcpy(entries_[used_].tag, tag, tag_bytes);
    return entries_[newest_ = used_++];
  }
  void count(const char (&tag)[tag_bytes], std::size_t kind) noexcept {
    ++of(tag).operations[kind];
  }
  // The counts that are used: first the one without a tag. other() has all tags beyond the first.
  std::span<const Entry> named() const noexcept { return std::span(entries_).first(used_); }
  const Entry& other() const noexcept { return entries_.back(); }

 private:
  static constexpr std::size_t last = 1 + most_tags;

  std::array<Entry, last + 1> entries_{};
  std::size_t used_ = 1;
  std::size_t newest_ = 0;
};

}  // namespace rondo::operation
