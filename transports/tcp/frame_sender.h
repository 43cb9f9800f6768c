// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transports/transport.h"

namespace rondo {

// The sending half of a connection in its data phase: writes at once what the socket takes, and keeps at most one frame
// that was taken in part.
class FrameSender {
 public:
  void attach(int socket) {
    socket_ = socket;
    kept_.reserve(eager_bytes);
  }
  Send send(const HeaderBytes& header, std::span<const std::byte> payload, std::uint64_t cookie);
  // Goes on with the frame under way. Returns whether anything moved.
  bool resume(Link& link, Sink& sink);

  // epoll says that there is room again.
  void flag_room() noexcept { room_ = true; }
  bool waits_for_room() const noexcept { return !room_; }
  // A frame is under way or was refused, and the socket may take more: a driver must not sleep now.
  bool has_work() const noexcept { return (busy_ || refused_) && room_; }
  // The errno value of the first failure; nothing is sent any more.
  int error() const noexcept { return error_; }

 private:
  ssize_t write(const HeaderBytes& header, std::size_t already, std::span<const std::byte> payload) noexcept;

  int socket_ = -1;
  int error_ = 0;
  bool room_ = true, busy_ = false;
  bool refused_ = false;  // full was answered since there was last room
  HeaderBytes header_{};
  std::size_t sent_ = 0;  // header and payload
  std::span<const std::byte> payload_;
  std::vector<std::byte> kept_;  // a small payload that the socket took in part
  std::uint64_t cookie_ = 0;
};

}  // namespace rondo
