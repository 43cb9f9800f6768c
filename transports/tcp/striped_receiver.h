// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/frame_tag.h"
#include "base/handshake.h"
#include "transports/assembler.h"
#include "transports/tcp/piece.h"
#include "transports/tcp/receiver.h"
#include "transports/transport.h"

namespace rondo::tcp {

// The receiving half of a link of several paths. It takes one frame after the other, its pieces
// from whichever path has them; piece.h says in which order. A path reads at most 4 KiB ahead of
// what may be taken.
class StripedReceiver final : public Receiver {
 public:
  StripedReceiver(BorrowSlot& slot, std::size_t paths) : slot_(slot), paths_(paths) {}
  void attach(std::size_t path, int socket, const base::Agreement& agreed) override {
    Path& one = paths_[path];
    one.socket = socket;
    if (agreed.protection == base::Protection::none) return;
    one.tags.emplace(agreed.keys.receiving);
    one.payload_tags = agreed.protection == base::Protection::payload;
    one.head_bytes = piece_prefix_bytes + base::tag_bytes;
  }
  bool receive(transports::Link& link, bool direct) override;
  void halt() noexcept override { frames_.halt(); }
  void flag_readable(std::size_t path) noexcept override { paths_[path].readable = true; }
  void flag_hang_up(std::size_t path) noexcept override { paths_[path].hung_up = true; }
  bool hung_up(std::size_t path) const noexcept override { return paths_[path].hung_up; }
  std::optional<std::size_t> closed_alone() const noexcept override;
  bool expecting() const noexcept override { return expecting_; }
  bool has_work() const noexcept override;
  const std::optional<End>& end() const noexcept override { return end_; }

 private:
  static constexpr std::size_t ahead_bytes = 4096;
  struct Path {
    int socket = -1;
    bool readable = false, hung_up = false, closed = false;
    bool known = false;    // `piece` has been read: its payload comes next
    bool checked = false;  // `piece` belongs to the frame that is being received
    Piece piece;
    std::size_t done = 0;  // how much of its payload has been taken
    std::optional<base::FrameTag> tags;
    bool payload_tags = false;
    bool tail_due = false;                        // the payload has arrived, its tag has not
    std::size_t head_bytes = piece_prefix_bytes;  // a piece's prefix, with the tag if there is one
    std::size_t begin = 0, filled = 0;            // what `ahead` holds
    std::array<std::byte, ahead_bytes> ahead;
    std::size_t buffered() const noexcept { return filled - begin; }
    bool flagged() const noexcept { return (readable || hung_up) && !closed; }
  };

  // True when what comes next on this path may not be taken before bytes of the others that are
  // awaited. An end behind it is then not read.
  bool waits_for_others(const Path& path) const noexcept;
  bool look(transports::Link& link, bool ask);
  bool drain(Path& path, transports::Link& link, bool ask);
  bool find_piece(Path& path, bool ask, bool& moved);
  bool fill(Path& path);
  // True when the piece belongs to the frame that is being received and may be taken now. May end
  // the link.
  bool admit(Path& path, transports::Link& link);
  bool check(Path& path);
  bool take(Path& path, transports::Link& link);
  ssize_t read(Path& path, std::span<std::byte> to, bool all) noexcept;
  void finish_piece(Path& path);
  bool finish_frame(transports::Link& link);
  // Ends the link if the sink has misused it. path: where that was noticed.
  void note_misuse(std::size_t path);
  bool ended(Path& path, ssize_t result);
  void damaged(const Path& path, std::string_view what);
  // Ends the link because of a wrong tag.
  void forged(const Path& path);
  // Checks the tag of a payload that has arrived whole. False while the tag has not arrived, or
  // when it is wrong.
  bool take_tail(Path& path);

  BorrowSlot& slot_;
  std::vector<Path> paths_;
  bool expecting_ = false;
  transports::Assembler frames_;
  // The frame that is being received.
  std::uint64_t sequence_ = 0;
  std::size_t elsewhere_ = 0;  // for how many more frames every path is read directly
  std::size_t pieces_ = 0, finished_ = 0, next_index_ = 0;
  std::vector<std::uint64_t> begun_;  // one bit for each piece
  std::size_t budget_ = 0;
  std::optional<End> end_;
};

}  // namespace rondo::tcp
