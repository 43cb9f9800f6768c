// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include <rondo/error.h>

#include "transports/shm/incoming.h"
#include "transports/shm/outgoing.h"
#include "transports/transport.h"

namespace rondo::shm {

// One end of a link: its two halves, and how it ends. Thread-bound (the driver of the transport),
// without locks.
class ShmLink final : public transports::Link {
 public:
  // windows: finds the memory of this rank. imports: the memory of the peer.
  ShmLink(ShmNeighbourState& peer, transports::Lane lane, const transports::Sinks& sinks,
          std::byte* out, const std::byte* in, std::size_t ring_bytes, transports::Windows& windows,
          const ShmImports& imports)
      : Link(peer.rank, lane, sinks, name_of(peer)),
        peer_(peer),
        outgoing_(peer, lane, out, ring_bytes, windows),
        incoming_(peer, lane, in, ring_bytes, imports) {}

  transports::Send send(const transports::HeaderBytes& header,
                        std::span<const std::byte> payload) override {
    return broken_ || peer_.ended ? transports::Send::full : outgoing_.send(header, payload);
  }

  // The functions below are for the transport.
  // The link has been asked for. Only then the sink hears of a peer that closes in order.
  void use() noexcept { used_ = true; }
  bool header_came() const noexcept { return used_ && incoming_.ready(); }
  bool progress();
  bool look() override {
    const bool moved = progress();
    // Nothing else tells progress() of the transport that the sink may have an answer.
    if (incoming_.shown()) peer_.busy = true;
    return moved;
  }
  // Stops the link: nothing moves any more, and the sink hears no more of it.
  void halt() noexcept {
    broken_ = true;
    outgoing_.halt();
    incoming_.halt();
  }
  // True when progress() must be called again although the peer's pair does not change.
  bool busy() const noexcept;
  // True when progress() would do something now.
  bool ready() const noexcept;

 private:
  static std::string name_of(const ShmNeighbourState& peer);
  bool over() const noexcept;
  void break_off(Errc code, std::string_view what, bool clean);

  ShmNeighbourState& peer_;
  ShmOutgoing outgoing_;
  ShmIncoming incoming_;
  bool used_ = false, broken_ = false;
};

}  // namespace rondo::shm
