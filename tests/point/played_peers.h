// SPDX-License-Identifier: Apache-2.0
//
// Rank 0 of a few, with messages only. The test plays the links and the other ranks, frame by
// frame.
#pragma once

#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "catch.h"
#include "collectives/engine/engine.h"
#include "collectives/point/point.h"
#include "support/idle_link.h"

namespace rondo::testing {

using Payload = std::vector<std::byte>;

class PlayedLink final : public IdleLink {
 public:
  transports::Send answer = transports::Send::done;
  int frames = 0;
  point::PointFrame last;  // what the last call of send() was given
  std::vector<point::PointFrame> grants;

  explicit PlayedLink(int peer) : IdleLink(peer, transports::Lane::messages) {}
  transports::Send send(const transports::HeaderBytes& header,
                        std::span<const std::byte>) override {
    REQUIRE(point::decode(header, last));
    frames += answer == transports::Send::full ? 0 : 1;
    if (answer != transports::Send::full && last.kind == point::PointKind::grant)
      grants.push_back(last);
    return answer;
  }
};

struct PlayedPeers final : operation::OwnerHost {
  void enqueued() override {}
  using Started = operation::Taken<point::MessageOperation>;

  explicit PlayedPeers(int size = 2, bool checksum = false)
      : point({0, size, checksum}, calls, *this) {
    for (int rank = 0; rank < size; ++rank) links.emplace_back(rank);
  }
  ~PlayedPeers() override { pool->close(); }

  transports::Link& link(int peer, transports::Lane) override {
    return links[static_cast<std::size_t>(peer)];
  }
  void finished(operation::Operation& operation) override {
    calls.remove(operation);
    operation.succeed();
  }
  void suspect(operation::Failure its_failure) override {
    if (!may_fail) FAIL(its_failure.cause);
    failure = std::move(its_failure);
  }

  Started receive(Payload& memory, std::uint32_t tag = 7, int peer = 1) {
    return start(false, memory, tag, peer);
  }
  Started receive_any(Payload& memory, std::uint32_t tag = 7) {
    return start(false, memory, tag, point::any_rank);
  }
  Started send(Payload& memory, std::uint32_t tag = 7, int peer = 1) {
    return start(true, memory, tag, peer);
  }
  transports::Send send_at_once(Payload& memory) {
    return point.send_at_once(transfer_of(memory), calls.started() + 1);
  }
  // Comes after send_at_once() has answered copied.
  Started await_sent(Payload& memory) {
    const point::PointTransfer transfer = transfer_of(memory);
    Started operation =
        list({{&transfer, 1}, {Collective::send, false, 1, 7, 1, memory.size()}, {}, "", false});
    point.await_sent(*operation, transfer);
    return operation;
  }
  // The header of a frame from a rank. complete() follows when its payload is there. message: its
  // number; that of the other direction in a grant.
  void arrive(int from, point::PointKind kind, std::uint64_t message, std::size_t bytes = 0,
              std::uint64_t offset = 0, std::uint32_t tag = 7) {
    point::PointFrame frame;
    frame.kind = kind;
    frame.key = {tag, 0};
    frame.message = message;
    frame.count = bytes;
    frame.offset = offset;
    arrive(from, frame);
  }
  void arrive(int from, const point::PointFrame& frame) {
    REQUIRE(point.arrived(link(from, transports::Lane::messages), point::encode(frame)) ==
            transports::Header::accept);
  }
  // content: the bytes of the payload; nothing is written where there is none.
  void complete(int from, std::span<const std::byte> content = {}) {
    transports::Link& its_link = link(from, transports::Lane::messages);
    if (!content.empty()) {
      const transports::Receive place = point.expected(its_link, 0).value();
      REQUIRE(place.bytes == content.size());
      std::memcpy(place.destination, content.data(), content.size());
    }
    point.received(its_link);
  }
  void lose(int peer, bool in_order, base::TimePoint now) {
    point.lost(link(peer, transports::Lane::messages), make_error_code(Errc::peer_lost),
               "connection reset by peer", in_order, now);
  }
  bool awaits(int peer) { return point.awaits_header(link(peer, transports::Lane::messages)); }
  std::vector<int> awaited(const operation::Operation& operation) const {
    operation::Awaited awaited;
    point.append_awaited(operation, awaited);
    return awaited.ranks;
  }
  static bool done(const operation::Operation& operation) {
    return operation.state() == operation::Operation::State::done;
  }

  bool may_fail = false;
  std::optional<operation::Failure> failure;          // the last one
  engine::Engine engine{{}, {nullptr}, {}, nullptr};  // only what operations refer to
  std::shared_ptr<operation::OperationPool> pool = std::make_shared<operation::OperationPool>();
  operation::LaneCalls calls{0, transports::Lane::messages};
  std::deque<PlayedLink> links;  // by rank; that to rank 0 is not used
  point::Point point;

 private:
  static point::PointTransfer transfer_of(Payload& memory) {
    return {true, 1, {7, 0}, DType::u8, memory.size(), memory.data()};
  }
  Started list(const point::PointCall& call) {
    Started operation(new point::MessageOperation(engine, pool));
    operation->start(call, calls.take_number());
    calls.append(*operation);
    point.reserve(call.transfers);
    return operation;
  }
  Started start(bool sending, Payload& memory, std::uint32_t tag, int peer) {
    const point::PointTransfer transfer{sending,   peer,          {tag, 0},
                                        DType::u8, memory.size(), memory.data()};
    const Collective name = sending ? Collective::send : Collective::receive;
    const point::PointCall call{
        {&transfer, 1}, {name, false, peer, tag, 1, memory.size()}, std::chrono::seconds{2}, ""};
    Started operation = list(call);
    point.begin(*operation, call.transfers);
    return operation;
  }
};

}  // namespace rondo::testing
