// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <rondo/error.h>

#include "base/file_descriptor.h"
#include "base/frame_tag.h"
#include "base/handshake.h"
#include "transports/rdma/messages.h"

namespace rondo::rdma {

// The TCP connection of a link: the two ends set the link up over it, and its end tells that the
// other process has ended. It carries a few messages of fixed size, so it keeps them in memory when
// the socket has no room. Where the ends agreed on protection, a tag follows each message.
// Thread-bound (the driver of the transport), without locks.
class Conversation {
 public:
  void attach(base::FileDescriptor socket, const base::Agreement& agreed);
  int socket() const noexcept { return socket_.get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(socket_); }
  void close() noexcept { socket_.reset(); }

  // The system has news of the socket.
  void flag() noexcept { flagged_ = true; }
  bool flagged() const noexcept { return flagged_; }
  // Sends what the socket has no room for later, in flush().
  void tell(const Told& told);
  void flush();
  // The next message of the peer, if it has come whole.
  std::optional<Told> read_message();
  // Why nothing more will come: the peer closed the connection or what is wrong with what it sent.
  struct End {
    Errc code = Errc::peer_lost;
    std::string what;
    bool closed = false;  // the system says that the other end is closed
  };
  const std::optional<End>& end() const noexcept { return end_; }

 private:
  std::size_t wire_bytes() const noexcept {
    return message_bytes + (receiving_ ? base::tag_bytes : 0);
  }

  base::FileDescriptor socket_;
  std::optional<base::FrameTag> sending_, receiving_;
  std::vector<std::byte> unsent_;
  std::array<std::byte, message_bytes + base::tag_bytes> come_{};
  std::size_t come_bytes_ = 0;
  bool flagged_ = false;
  std::optional<End> end_;
};

}  // namespace rondo::rdma
