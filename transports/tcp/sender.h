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

// The sending half of a link. It writes at once what the sockets take. Over one path frames go
// whole, one at a time. Over several they go in pieces (piece.h), each to the path with room that
// will deliver it first, judged by what is queued on each and how fast each has been. So frames of
// a single piece are spread over the paths too. The next frame is taken once every piece of the
// previous one has been begun.
//
// Thread-bound (the driver of the transport), without locks. A failure sets failure(); from then on
// no frame is taken and nothing is written, on any path.
class Sender {
 public:
  struct Failure {
    std::size_t path = 0;
    int error = 0;  // errno
  };

  explicit Sender(std::size_t paths);
  // Reserves memory and makes the tags, so that sending allocates nothing. speed: that of the
  // path's interface, in Mbit/s; 0: not known.
  void attach(std::size_t path, int socket, std::uint32_t speed, const base::Agreement& agreed);
  transports::Send send(const transports::HeaderBytes& header, std::span<const std::byte> payload);
  // Continues the frames under way, until there is a failure. Returns whether anything moved.
  bool resume(transports::Link& link);

  // epoll has reported that the socket has room again.
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
    Outgoing* frame = nullptr;  // a piece of it, or all of it, is under way here
    std::size_t index = 0, sent = 0;
    std::optional<base::FrameTag> tags;
    bool payload_tags = false;
    std::array<std::byte, piece_prefix_bytes + base::tag_bytes> head{};  // and its tag
    std::size_t head_bytes = 0;  // 0: the frame's header is the head
    base::Tag tail{};            // the tag of the payload
    std::size_t tail_bytes = 0;
    PathLoad load;
  };
  // The parts in memory of what is under way on a path, in the order of the wire.
  struct Parts {
    std::span<const std::byte> head, payload, tail;
    std::size_t bytes() const noexcept { return head.size() + payload.size() + tail.size(); }
  };

  bool whole() const noexcept { return paths_.size() == 1; }
  Outgoing& newest() noexcept { return frames_[(first_ + count_ - 1) % frames_.size()]; }
  const Outgoing& newest() const noexcept {
    return frames_[(first_ + count_ - 1) % frames_.size()];
  }
  bool unbegun() const noexcept { return count_ > 0 && newest().begun < newest().pieces; }
  bool idle_path() const noexcept;
  bool can_take() const noexcept;
  // Gives what is left of the newest frame to paths that have room. Returns whether anything was
  // written.
  bool distribute();
  std::optional<std::size_t> next_path();
  void look_at_queues(base::TimePoint now) noexcept;
  std::optional<std::size_t> earliest(base::TimePoint now) const noexcept;
  bool begin(std::size_t path);
  void make_head(Path& path) const;
  std::span<const std::byte> payload_of(const Path& path) const noexcept;
  Parts parts_of(const Path& path) const noexcept;
  bool write(std::size_t path);
  static ssize_t write(int socket, Parts parts, std::size_t already) noexcept;

  std::vector<Path> paths_;
  std::vector<Outgoing> frames_;  // a ring
  std::size_t first_ = 0, count_ = 0;
  std::uint64_t next_sequence_ = 0;
  bool refused_ = false;  // the last send() answered full
  base::TimePoint looked_{};
  std::optional<Failure> failure_;
};

}  // namespace rondo::tcp
