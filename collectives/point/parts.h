// SPDX-License-Identifier: Apache-2.0
//
// The state of Point: transfers under way, messages that no receive here has taken yet, and one
// record for each peer. Thread-bound, as Point is; what allocates throws std::bad_alloc.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/fifo.h"
#include "collectives/point/frame.h"
#include "transports/transport.h"

namespace rondo::point {

class MessageOperation;
class Staging;
struct PointPeer;

// Bounds the messages that a peer may send before a receive has taken them. Each costs its bytes
// and message_cost more.
inline constexpr std::uint64_t point_credit = std::uint64_t{512} << 10, message_cost = 64;
// How many messages of one peer may be announced and not granted. A sender with more waits.
inline constexpr std::size_t most_announced = std::size_t{1} << 16;
// How many announced messages of one peer are granted at once. They share the link piece by piece.
inline constexpr std::size_t most_granted = 8;
// The largest frame of a granted message. Small messages, and frames of other transfers, go between
// two of these.
inline constexpr std::size_t point_piece_bytes = std::size_t{512} << 10;

// Items that are used again and again. Their addresses do not change.
template <class T>
class Pool {
 public:
  // Afterwards `count` items can be taken without an allocation.
  void reserve(std::size_t count) {
    for (; free_count_ < count; ++free_count_) {
      all_.push_back(std::make_unique<T>());
      free_.push(*all_.back());
    }
  }
  T& take() {
    reserve(1);
    --free_count_;
    T& item = *free_.pop();
    item = T{};
    return item;
  }
  void give(T& item) noexcept {
    free_.push(item);
    ++free_count_;
  }

 private:
  std::vector<std::unique_ptr<T>> all_;
  base::Fifo<T> free_;
  std::size_t free_count_ = 0;
};

// Memory for messages that came before their receive, in powers of two from 64 bytes to
// eager_bytes. Blocks are kept for the next messages.
struct Block {
  Block* next = nullptr;
  std::unique_ptr<std::byte[]> memory;
  std::size_t bytes = 0;
};
class Blocks {
 public:
  Block* take(std::size_t bytes) {
    const std::size_t kind = static_cast<std::size_t>(std::bit_width((bytes - 1) >> 6));
    if (Block* const block = free_[kind].pop()) return block;
    auto block = std::make_unique<Block>();
    block->bytes = std::size_t{64} << kind;
    block->memory = std::make_unique<std::byte[]>(block->bytes);
    held_ += block->bytes;
    all_.push_back(std::move(block));
    return all_.back().get();
  }
  void give(Block& block) noexcept {
    free_[static_cast<std::size_t>(std::bit_width((block.bytes - 1) >> 6))].push(block);
  }
  std::size_t held() const noexcept { return held_; }

 private:
  static constexpr std::size_t kinds =
      static_cast<std::size_t>(std::bit_width(transports::eager_bytes >> 6)) + 1;
  std::array<base::Fifo<Block>, kinds> free_;
  std::vector<std::unique_ptr<Block>> all_;
  std::size_t held_ = 0;
};

// Host memory for a piece of a message whose buffer is in device memory.
struct Slot {
  Slot* next = nullptr;  // of the same request, or free
  std::byte* memory = nullptr;
  bool small = false;
  bool loaded = false;  // the device has written it
  bool lent = false;    // a link sends it
};

// One send or receive of this rank that has not ended.
struct Request {
  Request* next = nullptr;
  MessageOperation* operation = nullptr;
  int peer = 0;  // any_rank: it has no message yet
  bool sending = false;
  bool from_any = false;   // the caller named no peer
  std::uint64_t turn = 0;  // of a receive that found no message: their order, by calls
  PointKey key;
  DType type = DType::u8;
  std::uint64_t count = 0;
  std::byte* data = nullptr;
  std::size_t bytes = 0;
  std::size_t offset = 0;  // bytes handed to the link, or received
  // The checksum of the next payload, if the link had no room for it.
  std::optional<std::uint32_t> checksum;
  std::uint64_t message = 0;  // number
  std::uint32_t flying = 0;   // frames under way: the link has taken them, sent() has not come
  bool handed = false;        // the link has taken everything, or everything has come

  // If `data` is device memory:
  Staging* staging = nullptr;
  std::size_t load_end = 0;  // the pieces before it are in slots, or have been sent
  base::Fifo<Slot> slots;    // loaded or being loaded, oldest first
  // Copies of a receive to its memory that have not ended, and one more while there will be
  // others.
  std::uint32_t copies = 0;
  // The other end of a message to this rank itself, if one of them is in device memory.
  Request* other_end = nullptr;
};

// The next piece to send, once it has been loaded; else null.
inline Slot* loaded_piece(const Request& request) noexcept {
  Slot* const next = request.slots.find([](const Slot& slot) { return !slot.lent; });
  return next != nullptr && next->loaded ? next : nullptr;
}

// A message that came, or was announced, before its receive was called here.
struct Arrival {
  Arrival* next = nullptr;
  Arrival *older = nullptr, *newer = nullptr;  // in Early
  PointPeer* peer = nullptr;
  PointFrame frame;
  bool announced = false;       // its bytes are still with the sender
  bool complete = false;        // its bytes are here: in the block, or in the frame
  Block* block = nullptr;       // null when the frame holds them
  Request* receiver = nullptr;  // a receive that took it while its bytes were still coming
  Request* sender = nullptr;    // the send, if this rank announced the message to itself
};

// Where the bytes of a complete message are.
inline const std::byte* bytes_of(const Arrival& arrival) noexcept {
  return arrival.block != nullptr ? arrival.block->memory.get() : arrival.frame.content.data();
}

// Receives and messages that wait for each other are kept in buckets, by tag.
inline constexpr std::size_t point_buckets = 16;
inline std::size_t bucket_of(const PointKey& key) noexcept {
  return key.tag % point_buckets;
}

// The messages of all peers that no receive has taken, in the order in which they came. A receive
// from any rank looks here; one that names its peer looks at that peer's, and takes the message out
// here without a search.
class Early {
 public:
  void add(Arrival& arrival) noexcept {
    arrival.older = newest_;
    arrival.newer = nullptr;
    (newest_ == nullptr ? oldest_ : newest_->newer) = &arrival;
    newest_ = &arrival;
  }
  void remove(Arrival& arrival) noexcept {
    (arrival.older == nullptr ? oldest_ : arrival.older->newer) = arrival.newer;
    (arrival.newer == nullptr ? newest_ : arrival.newer->older) = arrival.older;
  }
  Arrival* oldest(const PointKey& key) const noexcept {
    Arrival* arrival = oldest_;
    while (arrival != nullptr && arrival->frame.key != key) arrival = arrival->newer;
    return arrival;
  }

 private:
  Arrival *oldest_ = nullptr, *newest_ = nullptr;
};

// Receives and messages of one bucket, of all peers.
struct AnyBucket {
  base::Fifo<Request> posted;  // receives from any rank without a message
  Early early;
};

// A frame under way on a link.
struct Flight {
  Request* request = nullptr;  // null for grants and credit
  Slot* slot = nullptr;        // of the request, if the frame carries bytes from there
};

// The state of one peer, which may be this rank itself.
struct PointPeer {
  int rank = 0;
  transports::Link* link = nullptr;
  std::size_t pending = 0;  // requests that have not ended
  base::TimePoint heard{};  // when a frame came last
  // The link is lost; the rank has left in order. Losses says when that matters.
  bool lost = false, left = false;
  bool gone = false;  // it has left, and what it sent has come: a receive from any rank found so

  // To the peer.
  bool active = false;      // in Point::active_: there may be something to send
  bool piece_next = false;  // pieces and messages take turns
  std::uint64_t messages_sent = 0;
  std::uint64_t cost_sent = 0, cost_returned = 0;  // of messages sent without a grant
  base::Fifo<Request> waiting;                     // nothing sent yet
  base::Fifo<Request> announced;                   // not granted yet
  std::size_t announced_count = 0;
  base::Fifo<Request> flowing;  // granted; the first sends the next piece
  std::vector<Flight> flying;   // oldest first

  // From the peer.
  std::uint64_t messages_received = 0;
  // Counts messages that came without a grant: all, those taken by receives, and what of these the
  // peer has been told.
  std::uint64_t cost_received = 0, cost_consumed = 0, cost_reported = 0;
  std::array<base::Fifo<Arrival>, point_buckets> arrivals;
  std::array<base::Fifo<Request>, point_buckets>
      posted;                     // receives that name it, without a message
  std::size_t announcements = 0;  // among the arrivals
  base::Fifo<Request> matched;    // to an announced message, not granted yet
  base::Fifo<Request> granted;    // their pieces are coming
  std::size_t granted_count = 0;
  base::Fifo<Request> storing;  // everything has come; not all of it is stored

  // The frame that is arriving, where its payload goes, and the message or receive it belongs to.
  bool arriving = false;
  bool held = false;   // only its header: it waits for a slot
  bool taken = false;  // it was held and has a slot now; its header is shown once more
  PointFrame frame;
  transports::Receive receive;
  Arrival* arrival = nullptr;
  Request* request = nullptr;
  Slot* slot = nullptr;
};

}  // namespace rondo::point
