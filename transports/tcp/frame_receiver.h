// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <optional>
#include <span>

#include "base/frame_tag.h"
#include "base/handshake.h"
#include "transports/assembler.h"
#include "transports/tcp/receiver.h"
#include "transports/transport.h"

namespace rondo::tcp {

// The receiving half of a link of one path. It does not read beyond a frame that the sink expects,
// so that the next one can be placed too. Where the sink expects none, and the last one was small,
// one system call reads what has come behind the header too: the rest of the frame, and other small
// ones.
class FrameReceiver final : public Receiver {
 public:
  explicit FrameReceiver(BorrowSlot& slot) noexcept : slot_(slot) {}
  void attach(std::size_t, int socket, const base::Agreement& agreed) override {
    socket_ = socket;
    if (agreed.protection == base::Protection::none) return;
    tags_.emplace(agreed.keys.receiving);
    payload_tags_ = agreed.protection == base::Protection::payload;
    frames_.expect_trailer(base::tag_bytes);
  }
  bool receive(transports::Link& link, bool direct) override {
    bool moved = receive_one(link, direct);
    while (buffered() > 0 && receive_one(link, false)) moved = true;
    return moved;
  }
  void halt() noexcept override { frames_.halt(); }
  void flag_readable(std::size_t) noexcept override { readable_ = true; }
  void flag_hang_up(std::size_t) noexcept override { hung_up_ = true; }
  bool hung_up(std::size_t) const noexcept override { return hung_up_; }
  std::optional<std::size_t> closed_alone() const noexcept override { return std::nullopt; }
  bool expecting() const noexcept override { return expecting_; }
  bool has_work() const noexcept override;
  const std::optional<End>& end() const noexcept override { return end_; }

 private:
  static constexpr std::size_t ahead_bytes = std::size_t{8} << 10;

  std::size_t buffered() const noexcept { return ahead_end_ - ahead_begin_; }
  bool flagged() const noexcept { return readable_ || hung_up_ || buffered() > 0; }
  std::size_t take_ahead(std::span<std::byte> to) noexcept;
  bool receive_one(transports::Link& link, bool direct);
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
  bool hung_up_ = false;
  bool expecting_ = false;
  transports::Assembler frames_;
  std::size_t ahead_begin_ = 0, ahead_end_ = 0;  // what ahead_ holds
  std::array<std::byte, ahead_bytes> ahead_;
  std::optional<base::FrameTag> tags_;
  bool payload_tags_ = false;
  bool genuine_ = false;        // the tag of the header is right
  base::Tag tail_{};            // the tag of the payload
  std::size_t tail_bytes_ = 0;  // how much of it has arrived
  std::optional<End> end_;
};

}  // namespace rondo::tcp
