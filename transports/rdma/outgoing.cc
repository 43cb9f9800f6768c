// SPDX-License-Identifier: Apache-2.0
#include "transports/rdma/outgoing.h"

#include <algorithm>
#include <cstring>

#include "base/copy.h"
#include "base/text.h"

namespace rondo::rdma {
namespace {

constexpr int no_frame = -1;

ibv_sge part(const void* data, std::size_t bytes, std::uint32_t key) noexcept {
  return {reinterpret_cast<std::uintptr_t>(data), static_cast<std::uint32_t>(bytes), key};
}

}  // namespace

void Outgoing::open(const LinkSetup& peer, std::span<const std::unique_ptr<Path>> paths) {
  for (std::size_t i = 0; i < paths.size(); ++i)
    ways_.push_back({paths[i].get(), peer.paths[i].slots_key, peer.paths[i].device});
  slots_address_ = peer.slots_address;
  slots_ = peer.slots;
  slot_bytes_ = std::min<std::size_t>(peer.slot_bytes, SendPool::payload_bytes);
}

std::size_t Outgoing::slots_needed(std::size_t payload_bytes) const noexcept {
  return payload_bytes == 0 ? 1 : (payload_bytes - 1) / slot_bytes_ + 1;
}

// Whether a frame of this size can be handed over at once: all of a small one, the first piece of a
// large one.
bool Outgoing::may_send(std::size_t payload_bytes) noexcept {
  if (payload_bytes > transports::eager_bytes) return queued_ < most_queued;
  const std::size_t pieces = slots_needed(payload_bytes);
  return cut_ == queued_ && room() >= pieces && pool_.free_blocks() >= pieces &&
         best_way(static_cast<std::uint32_t>(2 * pieces)) != nullptr;
}

transports::Send Outgoing::refuse(std::size_t payload_bytes) noexcept {
  refused_ = true;
  refused_bytes_ = payload_bytes;
  return transports::Send::full;
}

transports::Send Outgoing::send(const transports::HeaderBytes& header,
                                std::span<const std::byte> payload) {
  if (halted_ || fault_) return transports::Send::full;
  if (!may_send(payload.size())) return refuse(payload.size());
  const bool small = payload.size() <= transports::eager_bytes;
  Frame& frame = small ? small_ : queued(queued_);
  frame = {};
  frame.header = header;
  frame.payload = payload;
  frame.number = frames_++;
  if (small) {
    begin(frame, false);
    while (!frame.all_cut() && cut_piece(frame, no_frame)) {
    }
    // A device that refuses a request has set fault(), and the link ends.
    return transports::Send::done;
  }
  ++queued_;
  return transports::Send::queued;
}

// Decides how the frame goes.
void Outgoing::begin(Frame& frame, bool may_borrow) {
  if (may_borrow) {
    const Keys* const keys = regions_.find(frame.payload.data(), frame.payload.size());
    frame.in_place = keys != nullptr;
    if (keys != nullptr) frame.keys = *keys;
  }
  if (const Grant* const grant = granted(frame.number, frame.payload.size())) {
    frame.direct = true;
    frame.grant = *grant;
  }
}

// Forgets grants for frames that have gone already.
const Grant* Outgoing::granted(std::uint64_t frame, std::size_t payload_bytes) noexcept {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < grant_count_; ++i)
    if (grants_[i].frame >= frame) grants_[kept++] = grants_[i];
  grant_count_ = kept;
  for (std::size_t i = 0; i < grant_count_; ++i)
    if (grants_[i].frame == frame && grants_[i].bytes == payload_bytes && payload_bytes != 0)
      return &grants_[i];
  return nullptr;
}

void Outgoing::heard(std::uint64_t consumed, std::span<const Grant> grants) {
  if (consumed < consumed_ || consumed > sent_) {
    fault_ = Fault{Errc::corrupt, "it says that it has consumed more than was sent"};
    return;
  }
  consumed_ = consumed;
  for (const Grant& grant : grants)
    if (grant_count_ < most_grants) grants_[grant_count_++] = grant;
}

void Outgoing::heard(std::uint16_t consumed) {
  heard(consumed_ + static_cast<std::uint16_t>(consumed - static_cast<std::uint16_t>(consumed_)),
        {});
}

Outgoing::Way* Outgoing::best_way(std::uint32_t requests) noexcept {
  Way* best = nullptr;
  for (Way& way : ways_)
    if (way.path->has_room(requests + Path::reserve) &&
        (best == nullptr || way.path->payload_under_way() < best->path->payload_under_way()))
      best = &way;
  return best;
}

// Posts the next piece of a frame. place: in the queue, or no_frame. False: there is no room.
bool Outgoing::cut_piece(Frame& frame, int place) {
  Way* const way = best_way(2);
  if (way == nullptr || room() == 0) return false;
  const std::size_t bytes = std::min(piece_bytes(frame), frame.payload.size() - frame.cut);
  if (!fill(frame, place, *way, bytes)) return false;
  frame.cut += bytes;
  frame.begun = true;
  ++sent_;
  if (tells(*way)) consumption_.told = consumption_.taken;
  return true;
}

// Posts a piece of `bytes` bytes. False: there is no memory for it, or the device refused it.
bool Outgoing::fill(Frame& frame, int place, Way& way, std::size_t bytes) {
  const std::uint64_t slot = sent_ % slots_;
  PieceMark mark{static_cast<std::uint32_t>(slot), frame.direct, frame.direct && frame.in_place,
                 std::nullopt};
  if (tells(way)) mark.consumed = static_cast<std::uint16_t>(consumption_.taken);
  Request marked{.address = slots_address_ + slot * (slot_head_bytes + slot_bytes_),
                 .key = way.slots_key,
                 .kind = Request::Kind::write_with_mark,
                 .mark = encode(mark)};
  const std::size_t most_inline = way.path->most_inline();
  const std::byte* const from = frame.payload.data() + frame.cut;
  const bool first = !frame.begun;
  if (first && !frame.direct && slot_head_bytes + bytes <= most_inline) {
    marked.parts = {part(frame.header.data(), slot_head_bytes, 0), part(from, bytes, 0)};
    marked.part_count = bytes == 0 ? 1 : 2;
    marked.inlined = true;
    return post(way, marked, {});
  }
  const bool head_inline = first && frame.direct && slot_head_bytes <= most_inline;
  Source source;
  if (!find_source(frame, way, bytes, first && !head_inline, source)) return false;
  if (head_inline) source.head = part(frame.header.data(), slot_head_bytes, 0);
  const int reader = frame.in_place ? place : no_frame;
  if (frame.in_place) ++frame.under_way;
  if (frame.direct) return post_direct(frame, way, source, marked, reader, head_inline);
  marked.address += first ? 0 : slot_head_bytes;
  marked.parts =
      first ? std::array{source.head, source.payload} : std::array{source.payload, ibv_sge{}};
  marked.part_count = first && bytes != 0 ? 2 : 1;
  return post(way, marked, {source.piece, reader, bytes});
}

// Where a piece is sent from. The header needs memory of the pool unless it goes inline.
bool Outgoing::find_source(const Frame& frame, const Way& way, std::size_t bytes, bool with_head,
                           Source& source) {
  const std::size_t device = way.path->device_index();
  const std::byte* const from = frame.payload.data() + frame.cut;
  SendPool::Piece memory;
  if (frame.in_place) {
    source.payload = part(from, bytes, frame.keys.local[device]);
    if (!with_head) return true;
    memory = pool_.take_cell();
  } else {
    memory = pool_.take_block();
  }
  if (memory.number < 0) return false;
  source.piece = memory.number;
  const std::uint32_t key = pool_.keys().local[device];
  if (with_head) std::memcpy(memory.memory, frame.header.data(), slot_head_bytes);
  source.head = part(memory.memory, slot_head_bytes, key);
  if (frame.in_place) return true;
  base::copy_bytes(memory.memory + slot_head_bytes, from, bytes);
  source.payload = part(memory.memory + slot_head_bytes, bytes, key);
  return true;
}

// Writes a payload to its destination. The header of a frame follows its first piece over the same
// path, so the payload is there when the header comes.
bool Outgoing::post_direct(const Frame& frame, Way& way, const Source& source, Request& marked,
                           int reader, bool head_inline) {
  Request direct{.parts = {source.payload, {}},
                 .part_count = 1,
                 .address = frame.grant.address + frame.cut,
                 .key = frame.grant.keys[way.peer_device],
                 .kind = Request::Kind::write};
  const std::size_t bytes = source.payload.length;
  if (frame.begun) {
    direct.kind = Request::Kind::write_with_mark;
    direct.mark = marked.mark;
    return post(way, direct, {source.piece, reader, bytes});
  }
  if (!post(way, direct, {SendPool::none, reader, bytes})) return false;
  marked.parts = {source.head, {}};
  marked.part_count = 1;
  marked.inlined = head_inline;
  return post(way, marked, {source.piece, no_frame, 0});
}

bool Outgoing::post(Way& way, const Request& request, const Posted& uses) {
  const int error = way.path->post(request, uses);
  if (error == 0) return true;
  if (!fault_)
    fault_ = Fault{Errc::system, way.path->route() + ": the device refuses a send request: " +
                                     base::describe_errno(error)};
  return false;
}

void Outgoing::released(const Posted& one) noexcept {
  pool_.give_back(one.piece);
  if (one.frame >= 0) --queue_[static_cast<std::size_t>(one.frame)].under_way;
}

bool Outgoing::pump(transports::Link& link) {
  if (halted_ || fault_) return false;
  bool moved = false;
  while (cut_ < queued_) {
    Frame& frame = queued(cut_);
    if (!frame.begun) begin(frame, true);
    while (!frame.all_cut() && cut_piece(frame, static_cast<int>((first_ + cut_) % most_queued)))
      moved = true;
    if (!frame.all_cut()) break;
    ++cut_;
  }
  while (cut_ != 0 && queued(0).under_way == 0) {
    // Out of the queue first: the sink may send the next frame from within sent().
    first_ = (first_ + 1) % most_queued;
    --queued_;
    --cut_;
    moved = true;
    link.sink().sent(link);
    if (halted_) return true;
  }
  if (refused_ && may_send(refused_bytes_)) {
    refused_ = false;
    moved = true;
  }
  return moved;
}

bool Outgoing::ready() noexcept {
  if (halted_ || fault_) return false;
  if (refused_ && may_send(refused_bytes_)) return true;
  if (cut_ != 0 && queue_[first_].under_way == 0) return true;
  return cut_ < queued_ && room() != 0 && best_way(2) != nullptr && pool_.free_blocks() != 0;
}

}  // namespace rondo::rdma
