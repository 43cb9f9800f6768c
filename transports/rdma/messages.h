// SPDX-License-Identifier: Apache-2.0
//
// Messages between the two ends of a link. Over its TCP connection they set the link up and end it.
// Over its queue pairs the receiver sends credits and grants, and each piece has a mark.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transports/rdma/regions.h"
#include "transports/transport.h"

namespace rondo::rdma {

inline constexpr std::size_t most_paths = 16;
inline constexpr std::uint32_t most_slots = 64;
// A slot begins with the header of a frame, and its payload follows.
inline constexpr std::size_t slot_head_bytes = transports::frame_header_bytes;

// ---- over TCP ----

// One queue pair of a link.
struct PathSetup {
  std::uint32_t queue_pair = 0, first_packet = 0;
  std::uint32_t slots_key = 0;  // for its device
  std::uint32_t device = 0;     // the place of its device's keys in a grant
};

// Where the peer may write, and the numbers of the queue pairs.
struct LinkSetup {
  std::uint32_t slot_bytes = 0;  // of payload; a multiple of 64
  std::uint32_t slots = 0;
  std::uint64_t slots_address = 0;
  std::vector<PathSetup> paths;
};

enum class Notice : std::uint32_t {
  setup = 1,  // a LinkSetup follows
  ready,      // the queue pairs of this end can send and receive
  bye,        // the value is the number of pieces that this end has sent in all
  failed,     // this end gives the link up; the value is the length of a text that says why
};

// Every message has this size; the rest after the contents is zero.
inline constexpr std::size_t message_bytes = 512, message_head_bytes = 16;
using Message = std::array<std::byte, message_bytes>;
struct Told {
  Notice notice = Notice::ready;
  std::uint64_t value = 0;
  LinkSetup setup;     // if notice is setup
  std::string text{};  // if notice is failed: ASCII. encode() cuts what a message has no room for.
};
Message encode(const Told& told) noexcept;
// No value when the bytes are not a valid message.
std::optional<Told> decode(const Message& message);

// ---- over a queue pair ----

// Comes with each piece as immediate data:
//   bits 0-7   the slot that the piece uses up
//   bit 8      direct: the payload of this piece was written to granted memory
//   bit 9      large: direct, and the pieces of this frame are large
//   bit 10     bits 11-26 are valid
//   bits 11-26 the low bits of the number of pieces that the sender of this one has consumed in
//              all. A ping-pong therefore needs no messages of its own.
struct PieceMark {
  std::uint32_t slot = 0;
  bool direct = false, large = false;
  std::optional<std::uint16_t> consumed;
};
constexpr std::uint32_t encode(const PieceMark& mark) noexcept {
  return mark.slot | (mark.direct ? 0x100u : 0u) | (mark.large ? 0x200u : 0u) |
         (mark.consumed ? 0x400u | static_cast<std::uint32_t>(*mark.consumed) << 11 : 0u);
}
// No value when a bit is set that has no meaning.
constexpr std::optional<PieceMark> decode_mark(std::uint32_t bits) noexcept {
  const bool counts = (bits & 0x400u) != 0;
  if ((bits & ~(counts ? 0x7ffffffu : 0x3ffu)) != 0) return std::nullopt;
  PieceMark mark{bits & 0xffu, (bits & 0x100u) != 0, (bits & 0x200u) != 0, {}};
  if (counts) mark.consumed = static_cast<std::uint16_t>(bits >> 11);
  return mark;
}

// taken: pieces that this end has consumed; told: the last count that was sent to the peer. The
// receiving half sends it in messages, the sending half with its pieces.
struct Consumption {
  std::uint64_t taken = 0, told = 0;
};

// Payload bytes of a piece that goes straight to granted memory.
inline constexpr std::size_t large_piece_bytes = std::size_t{256} << 10;

// Memory that the receiver lets the sender write, for one frame.
struct Grant {
  std::uint64_t frame = 0;  // its number on the link and direction
  std::uint64_t address = 0, bytes = 0;
  std::array<std::uint32_t, most_devices> keys{};  // by device of the receiver
};
inline constexpr std::size_t most_grants_at_once = 4;

// A receiver's message to the sender: how many pieces it has consumed in all, and new grants.
inline constexpr std::size_t control_head_bytes = 16, grant_bytes = 24 + 4 * most_devices;
inline constexpr std::size_t control_bytes = control_head_bytes + most_grants_at_once * grant_bytes;
using ControlBytes = std::array<std::byte, control_bytes>;
// Returns how many bytes it is long. At most most_grants_at_once grants.
std::size_t encode(std::uint64_t consumed, std::span<const Grant> grants,
                   ControlBytes& bytes) noexcept;
// Puts the grants into `grants`, which has room for most_grants_at_once. Returns the number of
// grants, or none when the message is invalid.
std::optional<std::size_t> decode(std::span<const std::byte> bytes, std::uint64_t& consumed,
                                  std::span<Grant, most_grants_at_once> grants) noexcept;

}  // namespace rondo::rdma
