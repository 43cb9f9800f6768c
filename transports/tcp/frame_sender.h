// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/frame_tag.h"
#include "base/handshake.h"
#include "transports/transport.h"

namespace rondo::tcp {

// The sending half of a connection after the handshake. It writes at once what the socket takes,
// and keeps at most one frame that was taken in part. Thread-bound (the driver of the transport),
// without locks. A failure sets error(), and nothing is sent any more.
class FrameSender {
 public:
  // Reserves memory and makes the tags, so that sending allocates nothing.
  void attach(int socket, const base::Agreement& agreed) {
    socket_ = socket;
    kept_.reserve(transports::eager_bytes);
    if (agreed.protection != base::Protection::none) tags_.emplace(agreed.keys.sending);
    payload_tags_ = agreed.protection == base::Protection::payload;
  }
  transports::Send send(const transports::HeaderBytes& header, std::span<const std::byte> payload);
  // Continues the frame under way. Returns whether anything moved.
  bool resume(transports::Link& link);

  // epoll has reported that the socket has room again.
  void flag_room() noexcept { room_ = true; }
  bool waits_for_room() const noexcept { return !room_; }
  // A frame is under way or was refused, and the socket may take more: a driver must not sleep now.
  bool has_work() const noexcept { return (busy_ || refused_) && room_; }
  // The errno of the first failure, or 0.
  int error() const noexcept { return error_; }

 private:
  // The parts of a frame in memory, in the order of the wire.
  struct Parts {
    std::span<const std::byte> head, payload, tail;
    std::size_t bytes() const noexcept { return head.size() + payload.size() + tail.size(); }
  };
  Parts make_tags(const transports::HeaderBytes& header, std::span<const std::byte> payload);
  ssize_t write(Parts parts, std::size_t already) noexcept;

  int socket_ = -1;
  int error_ = 0;
  bool room_ = true, busy_ = false;
  bool refused_ = false;  // the last send() answered full
  std::optional<base::FrameTag> tags_;
  bool payload_tags_ = false;
  std::array<std::byte, transports::frame_header_bytes + base::tag_bytes>
      head_{};        // a header and its tag
  base::Tag tail_{};  // the tag of a payload
  Parts under_way_;
  std::size_t sent_ = 0;         // how many of its bytes
  std::vector<std::byte> kept_;  // a small payload that the socket took in part
};

}  // namespace rondo::tcp
