// SPDX-License-Identifier: Apache-2.0
//
// Messages between two ranks: send, receive, batches of them, and all_to_all_v, in a lane of links
// of their own. A message of at most eager_bytes goes at once, as long as the receiver has room for
// messages nobody has asked for; any other is announced, and its bytes go in pieces from the
// sender's memory to the receiver's when a receive has asked for it. docs/point-to-point.md has the
// protocol and its bounds. Thread-bound: the engine's, under its lock.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "collectives/engine/failure.h"
#include "collectives/point/call.h"
#include "collectives/point/parts.h"
#include "transports/transport.h"

namespace rondo::engine {
class Operation;
}

namespace rondo::point {

// The engine's side.
class PointHost {
 public:
  virtual ~PointHost() = default;
  virtual transports::Link& point_link(int peer) = 0;
  // The last transfer of the operation has ended.
  virtual void point_finished(engine::Operation& operation) = 0;
  virtual void point_failed(engine::Failure failure) = 0;
};

class Point {
 public:
  struct Options {
    int rank = 0, size = 1;
    bool checksum = false;
  };
  struct Counters {
    std::uint64_t frames_sent = 0, frames_received = 0, bytes_sent = 0, bytes_received = 0;
  };

  Point(const Options& options, PointHost& host);

  // Makes room, so that begin() cannot fail.
  void reserve(const PointCall& call);
  std::uint64_t next_number() noexcept { return ++started_; }
  // The operation's transfers are under way from now on; some may end at once.
  void begin(engine::Operation& operation, const PointCall& call);
  engine::Operation* first() const noexcept {
    return first_;
  }                                            // of those under way, linked by next
  engine::Operation* oldest() const noexcept;  // of these
  void clear() noexcept;                       // forgets all transfers

  bool send_ready();
  std::optional<transports::Receive> expected(transports::Link& link) noexcept;
  bool awaits_header(transports::Link& link) noexcept;
  transports::Header arrived(transports::Link& link, const transports::HeaderBytes& header);
  void received(transports::Link& link);
  void sent(transports::Link& link);
  void broken(transports::Link& link, std::error_code code, std::string_view what, bool clean,
              base::TimePoint now);
  void peer_left(int rank, base::TimePoint now);
  // When check_farewells() has something to do.
  base::TimePoint farewell_check() const noexcept { return farewell_check_; }
  void check_farewells(base::TimePoint now);

  // "send #12 (8 f32 to rank 1, tag 7)"
  std::string describe(const engine::Operation& operation) const;
  // What it still lacks: "rank 1 has not called send with tag 7; ..."
  std::string missing(const engine::Operation& operation) const;
  // The ranks at the other ends of what it still lacks.
  void append_awaited(const engine::Operation& operation, std::vector<int>& ranks) const;
  const Counters& counters() const noexcept { return counters_; }
  std::size_t staging_bytes() const noexcept { return blocks_.held(); }

 private:
  PointPeer& peer(int rank);
  void activate(PointPeer& peer);
  void end(Parcel& parcel);
  void post(PointPeer& peer, Parcel& parcel);
  void send_to_self(PointPeer& peer, Parcel& parcel);
  void keep(PointPeer& peer, const Parcel& parcel, bool announced);
  void take(PointPeer& peer, Parcel& parcel, Arrival& arrival);
  void drop(Arrival& arrival) noexcept;
  void consumed(PointPeer& peer, std::uint64_t bytes);
  bool agree(const PointPeer& peer, const Parcel& parcel, const PointFrame& frame);

  bool send_ready(PointPeer& peer);
  bool send_next(PointPeer& peer);
  bool hand_over(PointPeer& peer, PointFrame& frame, Parcel* parcel,
                 std::span<const std::byte> payload);
  bool send_grant(PointPeer& peer);
  bool send_message(PointPeer& peer);
  bool send_piece(PointPeer& peer);
  bool send_credit(PointPeer& peer);
  void finish_sending(Parcel& parcel);

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
  std::string lost_text(const PointPeer& peer, std::string_view what) const;
  std::string missing(const PointPeer& peer, const Parcel& parcel) const;
  std::string tags_at_hand(const PointPeer& peer) const;

  const Options options_;
  PointHost& host_;
  std::vector<std::unique_ptr<PointPeer>> peers_;  // made when first used
  std::vector<PointPeer*> active_;
  Pool<Parcel> parcels_;
  Pool<Arrival> arrivals_;
  Blocks blocks_;
  engine::Operation* first_ = nullptr;
  std::uint64_t started_ = 0;
  base::TimePoint farewell_check_ = base::TimePoint::max();
  Counters counters_;
};

}  // namespace rondo::point
