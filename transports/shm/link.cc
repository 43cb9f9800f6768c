// SPDX-License-Identifier: Apache-2.0
#include "transports/shm/link.h"

#include <fmt/format.h>

#include <rondo/error.h>

namespace rondo::shm {

std::string ShmLink::name_of(const ShmNeighbourState& peer) {
  return peer.process.process > 0 ? fmt::format("process {}", peer.process.process)
                                  : "a process of this host";
}

bool ShmLink::progress() {
  if (broken_) return false;
  // Reads `ended` before the rings, so that what the peer sent before its end is still delivered.
  const bool ended = peer_.ended;
  bool moved = outgoing_.pump(*this);
  if (incoming_.pump(*this)) moved = used_ = true;
  if (broken_) return true;
  if (outgoing_.corrupt() || incoming_.corrupt()) {
    break_off(Errc::corrupt, "its counters or headers in shared memory are not possible", false);
    return true;
  }
  if (!incoming_.bad_place().empty()) {
    break_off(Errc::corrupt, incoming_.bad_place(), false);
    return true;
  }
  if (!incoming_.misuse().empty()) {
    break_off(Errc::system, incoming_.misuse(), false);
    return true;
  }
  if (!ended || !over()) return moved;
  if (!peer_.left())
    break_off(Errc::peer_lost, "its process has ended", false);
  else if (incoming_.at_boundary() && !outgoing_.waiting())
    break_off(Errc::peer_left, "the peer closed the connection", true);
  else
    break_off(Errc::peer_lost, "the peer closed the connection in the middle of a frame", false);
  return true;
}

bool ShmLink::busy() const noexcept {
  return !broken_ && (ready() || incoming_.shown() || (peer_.ended && used_));
}

bool ShmLink::ready() const noexcept {
  if (broken_) return false;
  if (peer_.ended && over()) return true;
  return incoming_.ready() || outgoing_.ready() || outgoing_.corrupt() || incoming_.corrupt();
}

// Called when the peer has ended. True when every frame that came has been delivered, when one can
// never finish, or when the rest waits for frames that can never be sent. A link that was never
// used ends without a word to the sink when the peer closes it in order.
bool ShmLink::over() const noexcept {
  if (!used_ && peer_.left()) return false;
  return incoming_.empty() || incoming_.cut() || (incoming_.stuck() && outgoing_.waiting());
}

void ShmLink::break_off(Errc code, std::string_view what, bool clean) {
  broken_ = true;
  sink().broken(*this, code, what, clean);
}

}  // namespace rondo::shm
