// SPDX-License-Identifier: Apache-2.0
#include "tools/pairs/link.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace rondo::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t pair_word_tag = 0x50524957, pair_block_tag = 0x50524942,
                        pair_answer_tag = 0x50524941;
constexpr std::size_t pair_round_trips = 200, untimed = 3;
// Blocks begin with this size. Those of a slow link shrink to no less than the smallest size.
constexpr std::size_t first_block = 16 * 1024, smallest_block = 4096;
// A slow link needs blocks that it can send soon. So they stop growing when one takes longer than
// the first one by more than this part of the time, twice in a row, or once by more than all of the
// time. If a shaper lets some blocks pass at once, a slow link shows late: then the last block
// shrinks, by how much longer it took.
constexpr int least_blocks = 16, much_longer = 4;
constexpr std::size_t no_end = std::numeric_limits<std::size_t>::max();
constexpr std::uint64_t last = 0, more = 1;
constexpr std::uint64_t of_stream = std::uint64_t{1} << 63;
constexpr Buffer no_bytes{};

}  // namespace

Link::Link(Communicator& communicator, const Limits& limits)
    : communicator_(communicator),
      bytes_(std::max(limits.bytes, sizeof(std::uint64_t))),
      window_(std::max<std::size_t>(limits.window, 1)),
      time_(limits.time),
      memory_(bytes_ * window_),
      works_(window_) {}

Buffer Link::block(std::size_t message, std::size_t bytes) {
  return {place(message), bytes, DType::u8};
}

void Link::say(int peer, std::uint64_t word) {
  communicator_.send(Buffer{&word, 1, DType::u64}, peer, pair_word_tag).wait();
}

std::uint64_t Link::receive(int peer) {
  std::uint64_t word = 0;
  communicator_.receive(Buffer{&word, 1, DType::u64}, peer, pair_word_tag).wait();
  return word;
}

double Link::latency(int peer, bool first) {
  if (!first) {
    for (std::uint64_t word = more; word != last;) {
      word = receive(peer);
      say(peer, word);
    }
    return 0;
  }
  std::vector<double> halves;
  const auto begin = Clock::now();
  for (std::size_t trip = 0;; ++trip) {
    const auto sent = Clock::now();
    const bool ends =
        trip + 1 == untimed + pair_round_trips || (trip > untimed && sent - begin > time_ / 2);
    say(peer, ends ? last : more);
    receive(peer);
    if (trip >= untimed)
      halves.push_back(std::chrono::duration<double, std::micro>(Clock::now() - sent).count() / 2);
    if (ends) break;
  }
  // A busy host makes many of them longer, so the shorter ones say more of the link.
  const auto tenth = halves.begin() + static_cast<std::ptrdiff_t>(halves.size() / 10);
  std::ranges::nth_element(halves, tenth);
  return *tenth;
}

// Sends growing blocks, which also warms the path up. Returns the size of those of the stream.
std::size_t Link::grow_as_sender(int peer) {
  std::size_t bytes = std::min(first_block, bytes_);
  const Clock::duration limit = time_ / least_blocks;
  Clock::duration first{};  // the time of the first block: a round trip and a little more
  bool was_long = false;
  for (bool grows = true; grows;) {
    const auto sent = Clock::now();
    const std::size_t of_block = bytes;
    communicator_.send(block(0, bytes), peer, pair_block_tag).wait();
    communicator_.receive(no_bytes, peer, pair_answer_tag).wait();
    const Clock::duration taken = Clock::now() - sent;
    if (first == Clock::duration{}) first = taken;
    const Clock::duration excess = taken - first;
    const bool is_long = excess > limit;
    grows = is_long ? !was_long && excess <= time_ : bytes < bytes_;
    was_long = is_long;
    if (!grows && excess > much_longer * limit)
      bytes = std::max(std::min(smallest_block, bytes),
                       bytes / static_cast<std::size_t>(excess / limit));
    else if (grows && !is_long)
      bytes = std::min(2 * bytes, bytes_);
    say(peer, bytes | (grows ? 0 : of_stream));
    // A system with large buffers takes blocks at once that need seconds on a slow link.
    const Clock::duration each = taken * bytes / of_block + Clock::duration{1};
    most_ = window_ + 2 * static_cast<std::size_t>(time_ / each + 1);
  }
  return bytes;
}

std::size_t Link::grow_as_receiver(int peer) {
  std::size_t bytes = std::min(first_block, bytes_);
  for (std::uint64_t word = 0; (word & of_stream) == 0;) {
    communicator_.receive(block(0, bytes), peer, pair_block_tag).wait();
    communicator_.send(no_bytes, peer, pair_answer_tag).wait();
    word = receive(peer);
    bytes = std::clamp<std::size_t>(word & ~of_stream, sizeof word, bytes_);
  }
  return bytes;
}

double Link::send_stream(int peer) {
  const std::size_t bytes = grow_as_sender(peer);
  std::size_t end = no_end;
  const auto begin = Clock::now();
  std::size_t message = 0;
  for (; message < end; ++message) {
    Work& work = works_[message % window_];
    if (message >= window_) work.wait();
    // The window that is still to come takes its share of the time.
    const auto passed = Clock::now() - begin;
    const std::size_t done = message < window_ ? 0 : message - window_ + 1;
    if (end == no_end &&
        ((done > 0 && passed + passed / done * window_ >= time_) || message + window_ >= most_))
      end = message + window_;
    const std::uint64_t word = end == no_end ? more : last;
    std::memcpy(place(message), &word, sizeof word);
    work = communicator_.send(block(message, bytes), peer, pair_block_tag);
  }
  for (Work& work : works_) work.wait();
  communicator_.receive(no_bytes, peer, pair_answer_tag).wait();
  const std::chrono::duration<double, std::nano> taken = Clock::now() - begin;
  return static_cast<double>(bytes) * static_cast<double>(message) / taken.count();
}

void Link::receive_stream(int peer) {
  const std::size_t bytes = grow_as_receiver(peer);
  std::size_t end = no_end;
  for (std::size_t message = 0; message < window_; ++message)
    works_[message] = communicator_.receive(block(message, bytes), peer, pair_block_tag);
  for (std::size_t message = 0; message < end; ++message) {
    works_[message % window_].wait();
    std::uint64_t word = 0;
    std::memcpy(&word, place(message), sizeof word);
    if (end == no_end && word == last) end = message + window_;
    if (end == no_end)
      works_[message % window_] =
          communicator_.receive(block(message, bytes), peer, pair_block_tag);
  }
  communicator_.send(no_bytes, peer, pair_answer_tag).wait();
}

}  // namespace rondo::tools
