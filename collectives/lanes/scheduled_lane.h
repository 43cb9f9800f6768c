// SPDX-License-Identifier: Apache-2.0
//
// Runs the scheduled collectives of one priority over the links of its lane. On a link the frames
// of an operation come after those of the operations started before it. So the lane knows which
// frame must come next on each link, and checks every header against that.
//
// Threads: thread-bound to whoever holds the engine's lock. Failures: see owner.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/fifo.h"
#include "collectives/lanes/staging.h"
#include "collectives/operation/frame.h"
#include "collectives/operation/lane_calls.h"
#include "collectives/operation/losses.h"
#include "collectives/operation/operation.h"
#include "collectives/operation/owner.h"
#include "transports/transport.h"

namespace rondo::lanes {

class ScheduledLane final : public operation::LinkOwner {
 public:
  struct Options {
    int rank = 0, size = 1;
    bool checksum = false;
  };

  // calls and host outlive the lane.
  ScheduledLane(const Options& options, operation::LaneCalls& calls, operation::OwnerHost& host);
  ScheduledLane(const ScheduledLane&) = delete;
  ScheduledLane& operator=(const ScheduledLane&) = delete;

  // From now on the operation's frames move. Requires that the operation is not complete.
  void begin(operation::ScheduledOperation& operation);
  // To be called after a call of this lane has begun: a held header may wait for it.
  void check_held();
  // TwoLevelOwner has made its last copies from the operation's staging memory.
  void take_back_staging(const operation::ScheduledOperation& operation) noexcept {
    if (staging_owner_ == &operation) staging_owner_ = nullptr;
  }
  // Makes advance() serve this staging, which outlives the lane. Call it before a number is taken
  // for an operation that uses the staging.
  void add(Staging& staging);

  bool advance() override { return !running_.empty() && run(); }
  void clear() noexcept override;
  operation::Standing standing(const operation::Operation& operation, bool wants_only) override;
  void append_awaited(const operation::Operation& operation,
                      operation::Awaited& awaited) const override;
  operation::Traffic traffic() const noexcept override;
  void append_views(std::vector<operation::PeerView>& views) const override;

  std::optional<transports::Receive> expected(transports::Link& link, std::size_t ahead) override;
  transports::Header arrived(transports::Link& link,
                             const transports::HeaderBytes& header) override;
  std::size_t data(transports::Link& link, std::span<const std::byte> view) override;
  void received(transports::Link& link) override;
  void sent(transports::Link& link) override;
  void lost(transports::Link& link, std::error_code code, std::string_view what, bool clean,
            base::TimePoint now) override;
  base::TimePoint next_check() const noexcept override { return losses_.next_check(); }
  void check(base::TimePoint now) override;

 private:
  struct QueuedSend {
    operation::ScheduledOperation* operation = nullptr;
    operation::FramePlace place;
    bool borrowed = false;  // the link may read the payload until sent()
  };

  // Where this lane stands with one peer.
  struct Channel {
    int peer = 0;
    bool lost = false;
    transports::Link* link = nullptr;
    // The oldest operation that still needs frames from the peer, and the oldest that owes it some.
    operation::ScheduledOperation *receiving = nullptr, *sending = nullptr;
    int receiving_index = 0, sending_index = 0;  // of the peer in those operations' programs
    // The header of the next frame, if the link had no room for it. A payload that may be sent no
    // longer changes, so its checksum is computed once.
    std::optional<transports::HeaderBytes> refused;
    std::vector<QueuedSend> queued;            // frames under way on the link, oldest first
    std::optional<operation::Frame> arriving;  // header accepted, payload under way
    std::uint64_t heard = 0;                   // the newest operation of which a frame has come
    std::optional<operation::Frame> last;      // the newest header that was accepted
    base::TimePoint last_time{};               // when its frame had come
    std::uint64_t bytes = 0;                   // of the operation of `heard`
    std::uint32_t checksum = 0;                // of the borrowed bytes so far
    std::optional<operation::Frame> held;      // header of an operation that has not begun here
  };

  Channel& channel(int peer) noexcept { return channels_[static_cast<std::size_t>(peer)]; }
  Channel& channel(transports::Link& link) noexcept;
  bool send_ready(Channel& channel);
  transports::HeaderBytes header_of(const operation::ScheduledOperation& operation,
                                    const operation::Outgoing& outgoing) const;
  void finish(operation::ScheduledOperation& operation);
  // Go on to the next operation when the present one has no more frames for this channel.
  void settle_receiving(Channel& channel) noexcept;
  void settle_sending(Channel& channel);
  void show_header(Channel& channel) noexcept;
  bool check_frame(const Channel& channel, const operation::Frame& frame);
  bool check_payload(const Channel& channel, std::uint32_t checksum) const;
  void corrupt(const Channel& channel, std::string_view what);
  void check_loss(const Channel& channel, base::TimePoint now);
  bool run();
  bool grant_staging();
  bool advance_stagings();

  const Options options_;
  operation::LaneCalls& calls_;
  operation::OwnerHost& host_;
  std::vector<Channel> channels_;  // by rank
  std::vector<Channel*> senders_;  // those whose `sending` is set
  base::Fifo<operation::ScheduledOperation> running_;
  operation::Losses losses_;
  bool any_held_ = false;
  operation::Traffic traffic_;

  // Staging memory belongs to one operation at a time, in start order.
  operation::ScheduledOperation* staging_owner_ = nullptr;
  std::size_t staging_waiters_ = 0;
  std::vector<std::byte> staging_;
  std::vector<Staging*> stagings_;  // those that have been used
};

}  // namespace rondo::lanes
