// SPDX-License-Identifier: Apache-2.0
//
// Bytes that two paths of a link may bring: pieces in any order, with any numbers, and bytes that
// are no pieces. The receiver must write only to the memory that its sink gave it.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/file_descriptor.h"
#include "tests/support/idle_link.h"
#include "transports/tcp/striped_receiver.h"

using namespace rondo;

namespace {

constexpr std::size_t frame_bytes = 3 * tcp::piece_bytes + 104;  // whole elements

// Expects frames of one size, placed and borrowed in turn.
class FuzzSink final : public transports::Sink {
 public:
  std::optional<transports::Receive> expected(transports::Link&, std::size_t ahead) override {
    if (ahead > 0) return std::nullopt;
    return transports::Receive{frames_ % 2 == 0 ? buffer_.data() : nullptr, buffer_.size()};
  }
  transports::Header arrived(transports::Link&, const transports::HeaderBytes& header) override {
    return header[0] == std::byte{0xff} ? transports::Header::refuse : transports::Header::accept;
  }
  std::size_t data(transports::Link&, std::span<const std::byte> view) override {
    shown_ += view.size() / 8 * 8;
    if (shown_ > frame_bytes) std::abort();
    return view.size() / 8 * 8;
  }
  void received(transports::Link&) override {
    ++frames_;
    shown_ = 0;
  }
  void sent(transports::Link&) override {}
  void broken(transports::Link&, std::error_code, std::string_view, bool) override {}

 private:
  std::vector<std::byte> buffer_ = std::vector<std::byte>(frame_bytes);
  std::size_t shown_ = 0, frames_ = 0;
};

}  // namespace

// The input is a list of records of four bytes: path and kind; index of the piece, or the first
// byte of a frame's header; sequence number; bytes of the payload to send (0xff: all).
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto slot = std::make_unique<tcp::BorrowSlot>();
  std::array<base::FileDescriptor, 2> ours, theirs;
  tcp::StripedReceiver receiver(*slot, 2);
  for (std::size_t i = 0; i < 2; ++i) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) return 0;
    ours[i] = base::FileDescriptor(pair[0]);
    theirs[i] = base::FileDescriptor(pair[1]);
    receiver.attach(i, ours[i].get(), base::Agreement{});
  }
  FuzzSink sink;
  testing::IdleLink link(1, transports::Lane::bulk, &sink);
  static const std::vector<std::byte> payload(tcp::piece_bytes);
  for (std::size_t at = 0; at + 4 <= size; at += 4) {
    const int socket = theirs[data[at] & 1].get();
    if ((data[at] & 0x80) != 0) {
      (void)!::send(socket, data + at, 4, MSG_NOSIGNAL);
    } else {
      tcp::Piece piece{data[at + 2] & 3u, data[at + 1] & 7u, {}};
      if ((data[at] & 0x40) != 0) piece.header[0] = static_cast<std::byte>(data[at + 1]);
      const tcp::PiecePrefix prefix = tcp::encode(piece);
      if (tcp::decode_piece(prefix)->index != piece.index) std::abort();
      (void)!::send(socket, prefix.data(), prefix.size(), MSG_NOSIGNAL);
      const std::size_t whole = piece.index < tcp::pieces_of(frame_bytes)
                                    ? tcp::place_of(piece.index, frame_bytes).bytes
                                    : 0;
      const std::size_t bytes =
          data[at + 3] == 0xff ? whole : std::min<std::size_t>(whole, data[at + 3]);
      (void)!::send(socket, payload.data(), bytes, MSG_NOSIGNAL);
    }
    for (int i = 0; i < 8 && receiver.receive(link, true); ++i) (void)receiver.has_work();
  }
  theirs[0].reset();
  for (int i = 0; i < 8 && receiver.receive(link, true); ++i) (void)receiver.closed_alone();
  return 0;
}
