// SPDX-License-Identifier: Apache-2.0
//
// A non-blocking connection of the rendezvous and the control plane: fixed-size handshake messages
// first, then frames
//
//   frame = length:u32 type:u16 reserved:u16 payload:length bytes [tag:16 bytes]
//                                             ; length <= most_payload_bytes
//
// On a connection between two hosts each frame ends with a tag over the rest of it
// (base/frame_tag.h).
//
// The input buffer never grows beyond one frame: from a peer that sends more, nothing is read until
// the frame has been taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rondo/error.h>

#include "base/file_descriptor.h"
#include "base/frame_tag.h"
#include "base/handshake.h"

namespace rondo::wire {

inline constexpr std::size_t most_record_bytes = std::size_t{64} << 10;
inline constexpr std::size_t most_payload_bytes = most_record_bytes + 64;

struct StreamFrame {
  std::uint16_t type = 0;
  std::vector<std::byte> payload;
};

std::vector<std::byte> make_frame(std::uint16_t type, std::span<const std::byte> payload);

// Thread-bound. After the connection has ended, ended() is true, why() says why and everything else
// does nothing.
class Stream {
 public:
  explicit Stream(base::FileDescriptor descriptor);

  int descriptor() const noexcept { return descriptor_.get(); }
  // The peer's address as it was when the connection was made.
  const std::string& peer() const noexcept { return peer_; }
  // For poll().
  short events() const noexcept;

  // From now on frames have tags in both directions, if that was agreed. Call it at the same point
  // of the stream on both ends: after the handshake, when only whole frames follow. Throws
  // Error(system) if OpenSSL has no AES-128-GCM.
  void protect(const base::Agreement& agreed);

  // Reads what has come, as far as there is room. What came before the end of the connection can
  // still be taken.
  void read();
  // Sends at once as much as the kernel takes and keeps the rest for write(). After protect():
  // whole frames.
  void send(std::span<const std::byte> bytes);
  // As send(), for whole frames that the caller keeps unchanged while the stream lives: what is not
  // sent at once is not copied. At most one such part at a time; a second one is copied.
  void send_shared(std::span<const std::byte> bytes);
  bool has_shared() const noexcept { return !shared_.empty(); }
  void write();
  bool has_unsent() const noexcept { return sent_ < output_.size() || !shared_.empty(); }
  // Memory that this stream uses for unsent bytes.
  std::size_t unsent_bytes() const noexcept { return output_.size() - sent_ + later_.size(); }

  // Takes exactly to.size() bytes; false, and takes none, if they have not all arrived.
  bool take(std::span<std::byte> to);
  // Takes the next frame; no value if it has not all arrived. A length beyond the bound or a wrong
  // tag ends the stream.
  std::optional<StreamFrame> take_frame();

  bool ended() const noexcept { return !why_.empty(); }
  // "connection reset by peer", "connection closed by peer".
  const std::string& why() const noexcept { return why_; }
  // peer_lost; authentication if a frame did not come from the other end of the handshake.
  Errc code() const noexcept { return code_; }
  void end(std::string why, Errc code = Errc::peer_lost);
  // Ends this direction: the peer reads what was sent and then the end.
  void finish_sending() noexcept;

 private:
  std::span<const std::byte> next_part() const noexcept;
  void refill();
  void append_with_tags(std::span<const std::byte> frames);

  base::FileDescriptor descriptor_;
  std::string peer_;
  std::string why_;
  Errc code_ = Errc::peer_lost;
  std::optional<base::FrameTag> sending_, receiving_;
  std::vector<std::byte> input_;
  std::size_t taken_ = 0;
  std::vector<std::byte> output_;
  std::size_t sent_ = 0;
  // The unsent rest of the shared part; its place is before output_[shared_at_].
  std::span<const std::byte> shared_;
  std::size_t shared_at_ = 0;
  std::vector<std::byte> later_;  // frames behind the shared ones that have no tags yet
};

}  // namespace rondo::wire
