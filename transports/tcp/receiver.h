// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <string>

#include <rondo/error.h>

#include "base/handshake.h"
#include "transports/transport.h"

namespace rondo::tcp {

// Holds the bytes of borrowed frames while the sink looks at them. All links of a transport share
// one slot, because a sink uses a view at once. Small enough to stay in the second-level cache.
struct BorrowSlot {
  static constexpr std::size_t bytes = std::size_t{128} << 10;
  alignas(64) std::array<std::byte, bytes> memory;
};

// The most that is read from one link before the others, above all the urgent lane, have their
// turn.
inline constexpr std::size_t most_at_once = std::size_t{1} << 20;

// How the frames of a link ended, and on which path.
struct End {
  std::size_t path = 0;
  std::string what;
  bool clean = false;           // every path was closed at a frame boundary
  Errc code = Errc::peer_lost;  // or authentication (a wrong tag), or system (a misused link)
};

// The receiving half of a link: FrameReceiver over one path, StripedReceiver over several.
// Thread-bound (the driver of the transport), without locks. A failure sets end(), and nothing is
// read any more.
class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual void attach(std::size_t path, int socket, const base::Agreement& agreed) = 0;
  // Receives a frame, or a bounded part of a large one, and frames that were read ahead with it.
  // direct: if the sink expects something, reads also from sockets that epoll has not flagged.
  // Returns whether anything moved.
  virtual bool receive(transports::Link& link, bool direct) = 0;
  // Reads nothing more.
  virtual void halt() noexcept = 0;
  virtual void flag_readable(std::size_t path) noexcept = 0;
  // The end of the stream is to be read; the flag stays set.
  virtual void flag_hang_up(std::size_t path) noexcept = 0;
  virtual bool hung_up(std::size_t path) const noexcept = 0;
  // A path that the peer has closed while others are open.
  virtual std::optional<std::size_t> closed_alone() const noexcept = 0;
  // The sink expected a frame, or awaited a header, when it was last asked.
  virtual bool expecting() const noexcept = 0;
  // True when receive() would make progress, as far as the flags and the bytes read ahead tell.
  virtual bool has_work() const noexcept = 0;
  virtual const std::optional<End>& end() const noexcept = 0;
};

template <class Call>
ssize_t without_interruption(Call call) noexcept {
  ssize_t result = 0;
  do result = call();
  while (result < 0 && errno == EINTR);
  return result;
}

}  // namespace rondo::tcp
