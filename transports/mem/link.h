// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "transports/mem/incoming.h"
#include "transports/mem/mem.h"
#include "transports/mem/outgoing.h"
#include "transports/mem/ring.h"
#include "transports/transport.h"

namespace rondo::mem {

// One end of a link: its two halves, and the moment it breaks.
class MemLink final : public transports::Link {
 public:
  // other wakes the rank of the other end.
  MemLink(int rank, int peer, transports::Lane lane, const transports::Sinks& sinks, MemPipe& pipe,
          MemBell& other, const MemFaults& faults, std::uint64_t seed);
  ~MemLink() override;  // closes in order

  transports::Send send(const transports::HeaderBytes& header,
                        std::span<const std::byte> payload) override {
    return broken_ ? transports::Send::full : outgoing_.send(header, payload);
  }

  bool progress();
  bool ready() const noexcept;
  // Nothing moves any more, and the sink hears no more of this link.
  void halt() noexcept;

 private:
  bool over() const noexcept;
  void tell_broken();

  MemPipe& pipe_;
  MemBell& other_;
  MemOutgoing outgoing_;
  MemIncoming incoming_;
  bool broken_ = false;
};

}  // namespace rondo::mem
