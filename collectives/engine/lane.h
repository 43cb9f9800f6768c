// SPDX-License-Identifier: Apache-2.0
//
// The operations of one priority in start order, and where each link stands among them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <rondo/error.h>

#include "base/clock.h"
#include "collectives/engine/frame.h"
#include "collectives/engine/operation.h"
#include "transports/transport.h"

namespace rondo::engine {

struct QueuedSend {
  Operation* operation = nullptr;
  FramePlace place;
  bool borrowed = false;
};

// One peer in one lane. Frames of operations follow each other on a link in start order.
struct Channel {
  int peer = 0;
  transports::Lane lane = transports::Lane::bulk;
  transports::Link* link = nullptr;
  Operation* receiving = nullptr;  // the oldest operation that still needs frames from the peer
  Operation* sending = nullptr;    // the oldest that still owes it some
  int receiving_index = 0, sending_index = 0;  // of the peer in those operations' programs
  std::vector<QueuedSend> queued;              // frames under way on the link, oldest first
  std::optional<Frame> arriving;               // header accepted, payload under way
  std::uint32_t checksum = 0;                  // of the borrowed bytes so far
  std::optional<Frame> held;   // header of an operation that has not been started here
  std::string lost;            // why the link is of no further use
  bool lost_in_order = false;  // the peer closed it between two frames
  bool lost_matters = false;   // an operation has needed it since `lost_at`
  base::TimePoint lost_at{};
  Errc lost_code = Errc::peer_lost;
};

class Lane {
 public:
  void prepare(transports::Lane lane, int size);

  Channel& channel(int peer) noexcept { return channels_[static_cast<std::size_t>(peer)]; }
  std::vector<Channel>& channels() noexcept { return channels_; }
  const std::vector<Channel*>& senders() const noexcept { return senders_; }

  std::uint64_t started() const noexcept { return started_; }
  std::uint64_t begin_number() noexcept { return ++started_; }
  // All operations up to this one have ended.
  std::uint64_t finished() const noexcept {
    return first_ == nullptr ? started_ : first_->number - 1;
  }
  Operation* first() const noexcept { return first_; }
  Operation* find(std::uint64_t number) const noexcept;

  void append(Operation& operation);
  void remove(Operation& operation) noexcept;
  void clear() noexcept;

  // Moves on to the next operation when the present one has no more frames for this channel.
  void settle_receiving(Channel& channel) noexcept;
  void settle_sending(Channel& channel);

  // Staging memory of the lane belongs to one operation at a time, in start order.
  void grant_staging();
  std::size_t staging_bytes() const noexcept { return staging_.size(); }

  std::uint64_t frames_received = 0;
  std::uint64_t frames_at_last_look = 0;
  schedules::Signature last_signature;  // of the newest operation that ended well, for messages
  std::uint64_t last_number = 0;

 private:
  std::vector<Channel> channels_;
  std::vector<Channel*> senders_;
  Operation* first_ = nullptr;
  Operation* last_ = nullptr;
  std::uint64_t started_ = 0;
  Operation* staging_owner_ = nullptr;
  std::size_t staging_waiters_ = 0;
  std::vector<std::byte> staging_;
};

}  // namespace rondo::engine
