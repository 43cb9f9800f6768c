// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/striped_sender.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

namespace rondo::tcp {
namespace {

// The time between two looks at the queues: at 1 Gbit/s half a piece. A look is one short system
// call for each path.
constexpr microseconds look_interval{250};

}  // namespace

StripedSender::StripedSender(std::size_t paths) : paths_(paths) {
  for (Outgoing& frame : frames_) frame.kept.reserve(transports::eager_bytes);
}

bool StripedSender::waits_for_room() const noexcept {
  return std::ranges::any_of(paths_, [](const Path& path) { return !path.room; });
}

bool StripedSender::idle_path() const noexcept {
  return std::ranges::any_of(paths_,
                             [](const Path& path) { return path.room && path.frame == nullptr; });
}

bool StripedSender::can_take() const noexcept {
  return count_ < frames_.size() && !unbegun() && idle_path() && !failure_;
}

bool StripedSender::has_work() const noexcept {
  if (failure_) return false;
  if ((unbegun() && idle_path()) || (refused_ && can_take())) return true;
  return std::ranges::any_of(paths_,
                             [](const Path& path) { return path.room && path.frame != nullptr; });
}

transports::Send StripedSender::send(const transports::HeaderBytes& header,
                                     std::span<const std::byte> payload) {
  refused_ = !can_take();
  if (refused_) return transports::Send::full;
  ++count_;
  Outgoing& frame = newest();
  frame.header = header;
  frame.payload = payload;
  frame.sequence = next_sequence_;
  frame.pieces = pieces_of(payload.size());
  frame.begun = frame.written = 0;
  distribute();
  if (frame.begun == 0) {
    --count_;
    refused_ = true;
    return transports::Send::full;
  }
  ++next_sequence_;
  if (frame.written == frame.pieces) {
    --count_;
    return transports::Send::done;
  }
  if (payload.size() > transports::eager_bytes) return transports::Send::queued;
  frame.kept.assign(payload.begin(), payload.end());
  frame.payload = frame.kept;
  return transports::Send::copied;
}

// After a failure the other paths are left alone too: the peer can use no frame that lacks a piece,
// and a link that still moves puts off the report of its failure.
bool StripedSender::resume(transports::Link& link) {
  bool moved = false;
  for (std::size_t i = 0; i < paths_.size() && !failure_; ++i)
    if (paths_[i].frame != nullptr && paths_[i].room && write(i)) moved = true;
  if (distribute()) moved = true;
  while (count_ > 0 && frames_[first_].written == frames_[first_].pieces) {
    frames_[first_].payload = {};
    first_ = (first_ + 1) % frames_.size();
    --count_;
    moved = true;
    link.sink().sent(link);  // it may call send()
  }
  return moved;
}

void StripedSender::look_at_queues(base::TimePoint now) noexcept {
  looked_ = now;
  for (Path& path : paths_) {
    int bytes = 0;
    if (::ioctl(path.socket, SIOCOUTQ, &bytes) == 0 && bytes >= 0)
      path.load.queued(now, static_cast<std::size_t>(bytes));
  }
}

std::optional<std::size_t> StripedSender::earliest(base::TimePoint now) const noexcept {
  const Outgoing& frame = newest();
  const std::size_t bytes = piece_prefix_bytes + place_of(frame.begun, frame.payload.size()).bytes;
  std::optional<std::size_t> best;
  base::TimePoint soonest = base::TimePoint::max();
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    if (!paths_[i].room || paths_[i].frame != nullptr) continue;
    const base::TimePoint finish = paths_[i].load.finish(now, bytes);
    if (finish >= soonest) continue;
    soonest = finish;
    best = i;
  }
  return best;
}

bool StripedSender::distribute() {
  bool moved = false;
  while (unbegun() && !failure_) {
    const base::TimePoint now = base::Clock::now();
    if (now - looked_ >= look_interval) look_at_queues(now);
    const auto path = earliest(now);
    if (!path) break;
    if (begin(*path)) moved = true;  // else the path has no room any more
  }
  return moved;
}

bool StripedSender::begin(std::size_t which) {
  Path& path = paths_[which];
  Outgoing& frame = newest();
  path.frame = &frame;
  path.index = frame.begun;
  path.sent = 0;
  write_head(path, place_of(path.index, frame.payload.size()));
  const std::size_t tags = path.tags ? (path.tail_bytes > 0 ? 2 : 1) : 0;
  if (!write(which)) {
    path.frame = nullptr;
    return false;  // the tags were not sent: the next piece uses their numbers
  }
  if (path.tags) path.tags->skip(tags);
  ++frame.begun;
  return true;
}

void StripedSender::write_head(Path& path, const PiecePlace& place) {
  const Outgoing& frame = *path.frame;
  const PiecePrefix prefix =
      encode(Piece{frame.sequence, static_cast<std::uint32_t>(path.index), frame.header});
  const auto end = std::ranges::copy(prefix, path.head.begin()).out;
  path.tail_bytes = 0;
  if (!path.tags) return;
  path.tags->begin();
  path.tags->add(prefix);
  std::ranges::copy(path.tags->end(), end);
  path.head_bytes = path.head.size();
  if (!path.payload_tags || place.bytes == 0) return;
  path.tags->begin(1);
  path.tags->add(frame.payload.subspan(place.offset, place.bytes));
  path.tail = path.tags->end();
  path.tail_bytes = path.tail.size();
}

// True when the socket took anything. What it left is written once the socket has room.
bool StripedSender::write(std::size_t which) {
  Path& path = paths_[which];
  const PiecePlace place = place_of(path.index, path.frame->payload.size());
  const std::size_t all = path.head_bytes + place.bytes + path.tail_bytes;
  const std::size_t head_sent = std::min(path.sent, path.head_bytes);
  const std::size_t payload_sent = std::min(path.sent - head_sent, place.bytes);
  const std::size_t tail_sent = path.sent - head_sent - payload_sent;
  const auto payload =
      path.frame->payload.subspan(place.offset + payload_sent, place.bytes - payload_sent);
  std::array<iovec, 3> parts{iovec{path.head.data() + head_sent, path.head_bytes - head_sent},
                             iovec{const_cast<std::byte*>(payload.data()), payload.size()},
                             iovec{path.tail.data() + tail_sent, path.tail_bytes - tail_sent}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = path.tail_bytes > 0 ? 3 : 2;
  ssize_t result = 0;
  do result = ::sendmsg(path.socket, &message, MSG_NOSIGNAL);
  while (result < 0 && errno == EINTR);
  if (result < 0) {
    if (errno != EAGAIN && !failure_) failure_ = Failure{which, errno};
    path.room = false;
    return false;
  }
  path.load.took(base::Clock::now(), static_cast<std::size_t>(result));
  path.sent += static_cast<std::size_t>(result);
  if (path.sent < all) {
    path.room = false;
  } else {
    ++path.frame->written;
    path.frame = nullptr;
  }
  return true;
}

}  // namespace rondo::tcp
