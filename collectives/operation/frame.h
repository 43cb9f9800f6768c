// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "collectives/schedules/call.h"
#include "transports/transport.h"

namespace rondo::operation {

// The header of a frame: it names the call that the frame belongs to, and its place in it. The
// grammar is in frame.cc.
struct Frame {
  schedules::Signature signature;
  std::uint64_t number = 0;    // of the operation in its lane, from 1
  std::uint16_t segment = 0;   // modulo 2^16
  std::uint16_t frame = 0;     // of the segment on this link, in link order; modulo 2^16
  std::uint32_t checksum = 0;  // CRC32C of the payload; 0 when checksums are off
  double input_scale = 1;      // the sender's: for a payload that is its input

  bool operator==(const Frame&) const = default;
};

transports::HeaderBytes encode(const Frame& frame) noexcept;
// Computes the header's own checksum and stores it at the end of the header.
void seal(transports::HeaderBytes& bytes) noexcept;
// Returns nothing when the bytes are no header of this version, or when their CRC is wrong.
std::optional<Frame> decode(const transports::HeaderBytes& bytes) noexcept;

}  // namespace rondo::operation
