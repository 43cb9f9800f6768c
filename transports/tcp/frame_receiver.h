// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include <rondo/error.h>

#include "base/frame_tag.h"
#include "base/handshake.h"
#include "transports/assembler.h"
#include "transports/transport.h"

namespace rondo::tcp {

// Where the bytes of borrowed frames sit while the sink looks at them: one for all links of a
// transport, since a view is used up at once. Small enough to stay in the second-level cache.
struct BorrowSlot {
  static constexpr std::size_t bytes = std::size_t{128} << 10;
  alignas(64) std::array<std::byte, bytes> memory;
};

// The receiving half of a connection in its data phase. It never reads beyond the frame that the
// sink expects, so that what follows can be placed too.
class FrameReceiver {
 public:
  // How the stream of frames ended.
  struct End {
    std::string what;
    bool clean = false;
    Errc code = Errc::peer_lost;  // or authentication, for a wrong tag
  };

  explicit FrameReceiver(BorrowSlot& slot) noexcept : slot_(slot) {}
  void attach(int socket, const base::Agreement& agreed) {
    socket_ = socket;
    if (agreed.protection == base::Protection::none) return;
    tags_.emplace(agreed.keys.receiving);
    payload_tags_ = agreed.protection == base::Protection::payload;
    frames_.expect_trailer(base::tag_bytes);
  }
  // At most one frame, and a bounded part of a large one. direct: also ask a socket that epoll has
  // not flagged, where the sink expects something. Returns whether anything moved.
  bool receive(transports::Link& link, transports::Sink& sink, bool direct);

  // Reads nothing more.
  void halt() noexcept { frames_.halt(); }
  void flag_readable() noexcept { readable_ = true; }
  void flag_hang_up() noexcept { hung_up_ = true; }
  // The sink expected a frame when it was last asked.
  bool expecting() const noexcept { return expecting_; }
  // The socket is flagged, and receive() would read from it.
  bool has_work() const noexcept;
  const std::optional<End>& end() const noexcept { return end_; }

 private:
  bool flagged() const noexcept { return readable_ || hung_up_; }
  bool read_header(transports::Link& link, transports::Sink& sink);
  bool read_frame(transports::Link& link, transports::Sink& sink);
  ssize_t read(std::span<std::byte> payload, std::span<std::byte> tail) noexcept;
  // False when the header was held back or refused, or has a wrong tag.
  bool show_header(transports::Link& link, transports::Sink& sink);
  bool is_genuine();
  bool settle();
  void ended(ssize_t result);

  BorrowSlot& slot_;
  int socket_ = -1;
  bool readable_ = false;  // since the socket was last found empty
  bool hung_up_ = false;   // there is an end to be read, for good
  bool expecting_ = false;
  transports::Assembler frames_;
  std::optional<base::FrameTag> tags_;
  bool payload_tags_ = false;
  bool genuine_ = false;        // the tag of the header has been looked at
  base::Tag tail_{};            // that of the payload
  std::size_t tail_bytes_ = 0;  // that have come
  std::optional<End> end_;
};

}  // namespace rondo::tcp
