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

// Holds the bytes of borrowed frames while the sink looks at them. All links of a transport share
// one slot, because a sink uses a view at once. Small enough to stay in the second-level cache.
struct BorrowSlot {
  static constexpr std::size_t bytes = std::size_t{128} << 10;
  alignas(64) std::array<std::byte, bytes> memory;
};

// The receiving half of a connection after the handshake. It never reads beyond the frame that the
// sink expects, so that the next one can be placed too. Thread-bound (the driver of the transport),
// without locks. A failure sets end(), and nothing is read any more.
class FrameReceiver {
 public:
  // How the stream of frames ended.
  struct End {
    std::string what;
    bool clean = false;
    Errc code = Errc::peer_lost;  // or authentication (a wrong tag), or system (a misused link)
  };

  explicit FrameReceiver(BorrowSlot& slot) noexcept : slot_(slot) {}
  void attach(int socket, const base::Agreement& agreed) {
    socket_ = socket;
    if (agreed.protection == base::Protection::none) return;
    tags_.emplace(agreed.keys.receiving);
    payload_tags_ = agreed.protection == base::Protection::payload;
    frames_.expect_trailer(base::tag_bytes);
  }
  // Receives at most one frame, or a bounded part of a large one. direct: if the sink expects
  // something, reads also from a socket that epoll has not flagged. Returns whether anything moved.
  bool receive(transports::Link& link, bool direct);

  // Reads nothing more.
  void halt() noexcept { frames_.halt(); }
  void flag_readable() noexcept { readable_ = true; }
  void flag_hang_up() noexcept { hung_up_ = true; }
  // The sink expected a frame, or awaited a header, when it was last asked.
  bool expecting() const noexcept { return expecting_; }
  // True when the socket is flagged and receive() would read from it.
  bool has_work() const noexcept;
  const std::optional<End>& end() const noexcept { return end_; }

 private:
  bool flagged() const noexcept { return readable_ || hung_up_; }
  bool read_header(transports::Link& link);
  bool read_frame(transports::Link& link);
  ssize_t read(std::span<std::byte> payload, std::span<std::byte> tail) noexcept;
  // False when the header was held or refused or has a wrong tag, or when the sink misused the
  // link.
  bool show_header(transports::Link& link);
  bool is_genuine();
  bool settle();
  void ended(ssize_t result);

  BorrowSlot& slot_;
  int socket_ = -1;
  bool readable_ = false;  // flagged since the socket was last found empty
  bool hung_up_ = false;   // the end of the stream is to be read; it stays set
  bool expecting_ = false;
  transports::Assembler frames_;
  std::optional<base::FrameTag> tags_;
  bool payload_tags_ = false;
  bool genuine_ = false;        // the tag of the header is right
  base::Tag tail_{};            // the tag of the payload
  std::size_t tail_bytes_ = 0;  // how much of it has arrived
  std::optional<End> end_;
};

}  // namespace rondo::tcp
