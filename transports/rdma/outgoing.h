// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "transports/rdma/path.h"
#include "transports/rdma/send_pool.h"
#include "transports/transport.h"

namespace rondo::rdma {

// The sending half of a link. It cuts frames into pieces; each piece uses up one slot of the peer.
// Piece n goes to slot n modulo the number of slots, over the path with the least under way, so a
// slow path gets fewer. The peer tells how many pieces it has consumed, and what memory it grants.
//
// A payload goes
//   - with its header, inline, when both are tiny;
//   - from a block of the pool, when the program may change it at once or has not registered it;
//   - from where it lies, when the program has registered it: sent() follows its completion;
// and to a slot, or straight to its destination when the peer has granted that for this frame.
//
// Thread-bound (the driver of the transport), without locks. A failure sets fault(), and nothing
// is sent any more.
class Outgoing {
 public:
  Outgoing(SendPool& pool, RegionCache& regions, Consumption& consumption) noexcept
      : pool_(pool), regions_(regions), consumption_(consumption) {}

  // From now on the peer can receive.
  void open(const LinkSetup& peer, std::span<const std::unique_ptr<Path>> paths);
  transports::Send send(const transports::HeaderBytes& header, std::span<const std::byte> payload);
  // Cuts what there is room for, and reports frames that were sent. True when anything moved.
  bool pump(transports::Link& link);
  // The peer's message.
  void heard(std::uint64_t consumed, std::span<const Grant> grants);
  // The count that came with a piece of the peer: its low 16 bits. Only for pieces over the first
  // path: messages use it too, so counts arrive in order.
  void heard(std::uint16_t consumed);
  // The device has finished with this request.
  void released(const Posted& one) noexcept;
  void halt() noexcept { halted_ = true; }

  // True when pump() would do nothing until send() is called or the peer has consumed pieces.
  bool idle() const noexcept { return queued_ == 0 && !refused_ && !fault_; }
  // True when pump() would do something.
  bool ready() noexcept;
  // Frames are under way that Sink::sent() has not been told of.
  bool waiting() const noexcept { return queued_ != 0; }
  std::uint64_t pieces() const noexcept { return sent_; }
  const std::optional<Fault>& fault() const noexcept { return fault_; }

 private:
  static constexpr std::size_t most_queued = 16;
  static constexpr std::size_t most_grants = 32;

  struct Frame {
    transports::HeaderBytes header{};
    std::span<const std::byte> payload;
    std::uint64_t number = 0;
    std::size_t cut = 0;     // payload bytes that have gone into pieces
    unsigned under_way = 0;  // requests that read the payload where it lies
    bool begun = false;      // its first piece has been posted
    bool direct = false, in_place = false;
    Grant grant;
    Keys keys;  // if in_place
    bool all_cut() const noexcept { return begun && cut == payload.size(); }
  };

  // A path, and what the peer has told about its end of it.
  struct Way {
    Path* path = nullptr;
    std::uint32_t slots_key = 0;
    std::uint32_t peer_device = 0;  // the place of its device's key in a grant
  };
  // Where a piece is sent from. piece: of the pool, if it uses one.
  struct Source {
    ibv_sge head{}, payload{};
    int piece = SendPool::none;
  };

  bool may_send(std::size_t payload_bytes) noexcept;
  transports::Send refuse(std::size_t payload_bytes) noexcept;
  void begin(Frame& frame, bool may_borrow);
  const Grant* granted(std::uint64_t frame, std::size_t payload_bytes) noexcept;
  bool cut_piece(Frame& frame, int place);
  bool fill(Frame& frame, int place, Way& way, std::size_t bytes);
  bool find_source(const Frame& frame, const Way& way, std::size_t bytes, bool with_head,
                   Source& source);
  bool post_direct(const Frame& frame, Way& way, const Source& source, Request& marked, int reader,
                   bool head_inline);
  bool post(Way& way, const Request& request, const Posted& uses);
  // The path with the least under way among those that have room for so many requests.
  Way* best_way(std::uint32_t requests) noexcept;
  // True when a piece over this path carries the count of consumed pieces. Messages use the first
  // path too, so the peer receives counts in order.
  bool tells(const Way& way) const noexcept {
    return &way == &ways_.front() && consumption_.told != consumption_.taken;
  }
  std::size_t slots_needed(std::size_t payload_bytes) const noexcept;
  std::size_t piece_bytes(const Frame& frame) const noexcept {
    return frame.direct && frame.in_place ? large_piece_bytes : slot_bytes_;
  }
  std::uint64_t room() const noexcept { return slots_ - (sent_ - consumed_); }
  Frame& queued(std::size_t index) noexcept { return queue_[(first_ + index) % most_queued]; }

  SendPool& pool_;
  RegionCache& regions_;
  Consumption& consumption_;
  std::vector<Way> ways_;
  std::uint64_t slots_address_ = 0, slots_ = 0;
  std::size_t slot_bytes_ = 0;
  std::uint64_t sent_ = 0, consumed_ = 0;  // pieces
  std::uint64_t frames_ = 0;
  std::array<Frame, most_queued> queue_;
  Frame small_;                                   // is cut within send()
  std::size_t first_ = 0, queued_ = 0, cut_ = 0;  // cut_: how many of the queued are cut
  std::array<Grant, most_grants> grants_{};
  std::size_t grant_count_ = 0;
  bool refused_ = false, halted_ = false;
  std::size_t refused_bytes_ = 0;
  std::optional<Fault> fault_;
};

}  // namespace rondo::rdma
