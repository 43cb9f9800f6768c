// SPDX-License-Identifier: Apache-2.0
#include "transports/mem/link.h"

#include <system_error>

#include <rondo/error.h>

namespace rondo::mem {

MemLink::MemLink(int rank, int peer, transports::Lane lane, const transports::Sinks& sinks,
                 MemPipe& pipe, MemBell& other, const MemFaults& faults, std::uint64_t seed)
    : Link(peer, lane, sinks, "mem rank " + std::to_string(peer)),
      pipe_(pipe),
      other_(other),
      outgoing_({rank, peer, lane, MemPipe::direction(rank, peer)}, pipe, other, faults,
                MemDice(seed, rank, peer, lane)),
      incoming_(pipe, MemPipe::direction(peer, rank), other, faults,
                MemDice(seed, peer, rank, lane)) {}

MemLink::~MemLink() {
  incoming_.halt();
  pipe_.end(MemPipe::closed);
  other_.ring();
}

bool MemLink::progress() {
  if (broken_) return false;
  // The end is looked at before the ring: what was sent before it is still delivered.
  const bool ended = pipe_.state.load() != MemPipe::open;
  bool moved = outgoing_.pump(*this);
  moved |= incoming_.pump(*this);
  if (!broken_ && !incoming_.misuse().empty()) {
    broken_ = true;
    sink().broken(*this, Errc::system, incoming_.misuse(), false);
    return true;
  }
  if (ended && !broken_ && over()) {
    tell_broken();
    moved = true;
  }
  return moved;
}

bool MemLink::ready() const noexcept {
  if (broken_) return false;
  if (pipe_.state.load() != MemPipe::open && over()) return true;
  return outgoing_.ready() || incoming_.ready();
}

void MemLink::halt() noexcept {
  broken_ = true;
  outgoing_.halt();
  incoming_.halt();
}

// Asked when the pipe has ended. True when every frame that came has been delivered, or when what
// is left must wait for frames that will never go.
bool MemLink::over() const noexcept {
  return incoming_.empty() || (incoming_.stuck() && outgoing_.waiting());
}

void MemLink::tell_broken() {
  broken_ = true;
  const bool clean = pipe_.state.load() == MemPipe::closed && incoming_.at_boundary();
  const std::uint64_t cut_after = pipe_.cut_after.load();
  std::string what = clean ? "closed by the peer" : "connection reset by peer";
  if (cut_after != MemPipe::not_cut)
    what += " (a fault, after " + std::to_string(cut_after) + " bytes)";
  sink().broken(*this, std::make_error_code(clean ? std::errc{} : std::errc::connection_reset),
                what, clean);
}

}  // namespace rondo::mem
