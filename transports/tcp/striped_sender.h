// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/frame_tag.h"
#include "base/handshake.h"
#include "transports/tcp/path_load.h"
#include "transports/tcp/piece.h"
#include "transports/transport.h"

namespace rondo::tcp {

// The sending half of a link of several paths. Each piece goes to the path with room that will
// deliver it first, judged by what is queued on each and how fast each has been. So frames of a
// single piece are spread over the paths too. The next frame is taken once every piece of the
// previous one has been begun. Thread-bound (the driver of the transport), without locks. A failure
// sets failure(); from then on no frame is taken and nothing is written, on any path.
class StripedSender {
 public:
  struct Failure {
    std::size_t path = 0;
    int error = 0;  // errno
  };

  explicit StripedSender(std::size_t paths);
  // speed: that of the path's interface, in Mbit/s; 0: not known.
  void attach(std::size_t path, int socket, std::uint32_t speed, const base::Agreement& agreed) {
    paths_[path].socket = socket;
    paths_[path].load = PathLoad(speed);
    if (agreed.protection != base::Protection::none) paths_[path].tags.emplace(agreed.keys.sending);
    paths_[path].payload_tags = agreed.protection == base::Protection::payload;
  }
  transports::Send send(const transports::HeaderBytes& header, std::span<const std::byte> payload);
  // Continues the frames under way, until there is a failure. Returns whether anything moved.
  bool resume(transports::Link& link);

  void flag_room(std::size_t path) noexcept { paths_[path].room = true; }
  bool waits_for_room() const noexcept;
  // Something is under way or was refused, and a socket may take it: a driver must not sleep now.
  bool has_work() const noexcept;
  // The first failure, if any.
  const std::optional<Failure>& failure() const noexcept { return failure_; }

 private:
  struct Outgoing {
    transports::HeaderBytes header{};
    std::span<const std::byte> payload;
    std::vector<std::byte> kept;  // a small payload that the socket took in part
    std::uint64_t sequence = 0;
    std::size_t pieces = 0, begun = 0, written = 0;
  };
  struct Path {
    int socket = -1;
    bool room = true;
    Outgoing* frame = nullptr;  // the frame whose piece is under way here
    std::size_t index = 0, sent = 0;
    std::optional<base::FrameTag> tags;
    bool payload_tags = false;
    std::array<std::byte, piece_prefix_bytes + base::tag_bytes> head{};  // a prefix and its tag
    std::size_t head_bytes = piece_prefix_bytes;
    base::Tag tail{};  // the tag of the piece's payload
    std::size_t tail_bytes = 0;
    PathLoad load;
  };

  Outgoing& newest() noexcept { return frames_[(first_ + count_ - 1) % frames_.size()]; }
  const Outgoing& newest() const noexcept {
    return frames_[(first_ + count_ - 1) % frames_.size()];
  }
  bool unbegun() const noexcept { return count_ > 0 && newest().begun < newest().pieces; }
  bool idle_path() const noexcept;
  bool can_take() const noexcept;
  // Gives the newest frame's pieces to paths that have room. Returns whether anything was written.
  bool distribute();
  void look_at_queues(base::TimePoint now) noexcept;
  std::optional<std::size_t> earliest(base::TimePoint now) const noexcept;
  bool begin(std::size_t path);
  // Writes the prefix of the piece that begins on this path, and its tags.
  void write_head(Path& path, const PiecePlace& place);
  bool write(std::size_t path);

  std::vector<Path> paths_;
  std::array<Outgoing, most_frames_under_way> frames_;  // a ring
  std::size_t first_ = 0, count_ = 0;
  std::uint64_t next_sequence_ = 0;
  bool refused_ = false;  // the last send() answered full
  base::TimePoint looked_{};
  std::optional<Failure> failure_;
};

}  // namespace rondo::tcp
