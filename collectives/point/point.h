// SPDX-License-Identifier: Apache-2.0
//
// Runs messages between two ranks: send, receive, batches of them, and all_to_all_v, in a lane of
// links of their own. A message of at most eager_bytes goes at once while the sender has credit.
// Any other is announced. Once a receive has taken it, its bytes go in pieces from the sender's
// memory to the receiver's. docs/point-to-point.md has the protocol and its bounds.
//
// Bytes of messages in device memory go through slots of host memory (staging.h), piece by piece;
// what goes over links does not tell which end is there.
//
// Threads: thread-bound to whoever holds the engine's lock. Failures: see operation/owner.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "collectives/operation/lane_calls.h"
#include "collectives/operation/losses.h"
#include "collectives/operation/owner.h"
#include "collectives/point/call.h"
#include "collectives/point/matching.h"
#include "collectives/point/message_operation.h"
#include "collectives/point/parts.h"
#include "collectives/point/staging.h"
#include "transports/transport.h"

namespace rondo::point {

class Point final : public operation::LinkOwner {
 public:
  struct Options {
    int rank = 0, size = 1;
    bool checksum = false;
  };
  // calls and host outlive the object.
  Point(const Options& options, operation::LaneCalls& calls, operation::OwnerHost& host);

  // Allocates what begin() needs of transfers and peers. It comes before the number is taken,
  // because a number must be used.
  void reserve(std::span<const PointTransfer> transfers);
  // Sends a message from host memory if its link takes it whole, and nothing waits before it. full:
  // it has not been sent. done: it needs no operation. copied: await_sent() must follow, before
  // anything else, with the operation of this number.
  transports::Send send_at_once(const PointTransfer& transfer, std::uint64_t number);
  // The operation ends when the link has sent the message. Call reserve() before it.
  void await_sent(MessageOperation& operation, const PointTransfer& transfer);
  // From now on the operation's transfers are under way; some may end at once. Throws when there is
  // no memory to keep a message that this rank sends to itself.
  void begin(MessageOperation& operation, std::span<const PointTransfer> transfers);
  // Makes advance() serve this staging, which outlives the object. Call it before begin() of an
  // operation that uses the staging.
  void add(Staging& staging);
  // `rank` has destroyed its communicator in order.
  void peer_left(int rank, base::TimePoint now);

  bool advance() override {
    const bool moved = !stagings_.empty() && advance_staged();
    return (!active_.empty() && send_to_active()) || moved;
  }
  // Looks at the link of a message's only peer.
  bool look_for(const operation::Operation& operation) override;
  void clear() noexcept override;
  operation::Standing standing(const operation::Operation&, bool) override {
    return {WaitCause::messages};
  }
  void append_awaited(const operation::Operation& operation,
                      operation::Awaited& awaited) const override;
  // "not done within 2 s on rank 0: rank 1 has not called send with tag 7; ..."
  std::string late_text(const operation::Operation& operation) const override;
  operation::Traffic traffic() const noexcept override;
  void append_views(std::vector<operation::PeerView>& views) const override;

  std::optional<transports::Receive> expected(transports::Link& link, std::size_t ahead) override;
  bool awaits_header(transports::Link& link) override;
  transports::Header arrived(transports::Link& link,
                             const transports::HeaderBytes& header) override;
  // Never needed: frames of messages are always placed.
  std::size_t data(transports::Link&, std::span<const std::byte> view) override {
    return view.size();
  }
  void received(transports::Link& link) override;
  void sent(transports::Link& link) override;
  void lost(transports::Link& link, std::error_code code, std::string_view what, bool clean,
            base::TimePoint now) override;
  base::TimePoint next_check() const noexcept override { return losses_.next_check(); }
  void check(base::TimePoint now) override;

 private:
  PointPeer& peer(int rank) {
    const auto& place = peers_[static_cast<std::size_t>(rank)];
    return place ? *place : make_peer(rank);
  }
  PointPeer& make_peer(int rank);
  void activate(PointPeer& peer);
  void moved(const Request& request) noexcept;
  void end(Request& request);
  Request& take_request(MessageOperation& operation, const PointTransfer& transfer);
  void begin(PointPeer& peer, Request& request);
  void post_any(Request& request);
  void send_to_self(PointPeer& peer, Request& request);
  void take(PointPeer& peer, Request& request, Arrival& arrival);
  void consumed(PointPeer& peer, std::uint64_t bytes);
  bool agree(const PointPeer& peer, const Request& request, const PointFrame& frame);

  bool send_to_active();
  bool send_ready(PointPeer& peer);
  bool send_next(PointPeer& peer);
  transports::Send give(PointPeer& peer, PointFrame& frame, std::span<const std::byte> payload);
  void count_whole(PointPeer& peer, std::size_t bytes, std::span<const std::byte> payload) noexcept;
  bool hand_over(PointPeer& peer, PointFrame& frame, Request* request,
                 std::span<const std::byte> payload, Slot* slot = nullptr);
  bool send_grant(PointPeer& peer);
  bool send_message(PointPeer& peer);
  bool send_piece(PointPeer& peer);
  bool send_credit(PointPeer& peer);
  void finish_sending(Request& request);

  static bool load(Request& request, std::size_t offset, std::size_t bytes);
  static const std::byte* bytes_at(const Request& request, std::size_t offset, Slot*& slot);
  static void load_waiting(const PointPeer& peer);
  bool advance_staged();
  Request* receive_of_frame(PointPeer& peer) noexcept;
  bool waits_for_slot(PointPeer& peer) noexcept;
  transports::Receive place_for(PointPeer& peer, Request& request, std::size_t bytes) noexcept;
  void stored(Request& request);
  void received_all(PointPeer& peer, Request& request);
  void deliver(PointPeer& peer, Request& request, Arrival& arrival);
  bool deliver_waiting();
  void copy_to_self(PointPeer& peer, Request& from, Request& to);
  bool copy_some(Request& from);
  bool copy_waiting();

  bool accept(PointPeer& peer, const PointFrame& frame);
  bool accept_message(PointPeer& peer, const PointFrame& frame);
  bool accept_announce(PointPeer& peer, const PointFrame& frame);
  bool accept_piece(PointPeer& peer, const PointFrame& frame);
  bool accept_grant(PointPeer& peer, const PointFrame& frame);
  bool corrupt(const PointPeer& peer, std::string_view what);

  void received_message(PointPeer& peer);
  void received_piece(PointPeer& peer);
  bool check_content(const PointPeer& peer);

  void check_peer(PointPeer& peer, base::TimePoint now);
  void check_any(base::TimePoint now);
  std::string missing(const operation::Operation& operation) const;
  std::string missing_from_any(const Request& request) const;

  const Options options_;
  operation::LaneCalls& calls_;
  operation::OwnerHost& host_;
  std::vector<std::unique_ptr<PointPeer>> peers_;  // made when first used
  std::vector<PointPeer*> active_;
  std::size_t gone_ = 0;  // peers
  Pool<Request> requests_;
  Matching matching_;
  std::vector<Staging*> stagings_;        // those that have been used
  base::Fifo<Arrival> waiting_for_slot_;  // complete messages whose receive is staged
  base::Fifo<Request> copying_;           // messages to this rank itself
  operation::Losses losses_;
  operation::Traffic traffic_;
};

}  // namespace rondo::point
