// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/sender.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "transports/tcp/receiver.h"

namespace rondo::tcp {
namespace {

// Up to this size a copy into one buffer costs less than a list of buffers for the kernel.
constexpr std::size_t gathered_bytes = 4096 + piece_prefix_bytes + 2 * base::tag_bytes;
// The time between two looks at the queues: at 1 Gbit/s half a piece. A look is one short system
// call for each path.
constexpr microseconds look_interval{250};

std::span<const std::byte> drop(std::span<const std::byte> part, std::size_t& bytes) noexcept {
  const std::size_t here = std::min(part.size(), bytes);
  bytes -= here;
  return part.subspan(here);
}

}  // namespace

Sender::Sender(std::size_t paths)
    : paths_(paths), frames_(paths == 1 ? 1 : most_frames_under_way) {}

void Sender::attach(std::size_t which, int socket, std::uint32_t speed,
                    const base::Agreement& agreed) {
  for (Outgoing& frame : frames_) frame.kept.reserve(transports::eager_bytes);
  Path& path = paths_[which];
  path.socket = socket;
  path.load = PathLoad(speed);
  if (agreed.protection != base::Protection::none) path.tags.emplace(agreed.keys.sending);
  path.payload_tags = agreed.protection == base::Protection::payload;
}

bool Sender::waits_for_room() const noexcept {
  return std::ranges::any_of(paths_, [](const Path& path) { return !path.room; });
}

bool Sender::idle_path() const noexcept {
  return std::ranges::any_of(paths_,
                             [](const Path& path) { return path.room && path.frame == nullptr; });
}

bool Sender::can_take() const noexcept {
  return count_ < frames_.size() && !unbegun() && idle_path() && !failure_;
}

bool Sender::has_work() const noexcept {
  if (failure_) return false;
  if ((unbegun() && idle_path()) || (refused_ && can_take())) return true;
  return std::ranges::any_of(paths_,
                             [](const Path& path) { return path.room && path.frame != nullptr; });
}

transports::Send Sender::send(const transports::HeaderBytes& header,
                              std::span<const std::byte> payload) {
  refused_ = !can_take();
  if (refused_) return transports::Send::full;
  ++count_;
  Outgoing& frame = newest();
  frame.header = header;
  frame.payload = payload;
  frame.sequence = next_sequence_;
  frame.pieces = whole() ? 1 : pieces_of(payload.size());
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
bool Sender::resume(transports::Link& link) {
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

bool Sender::distribute() {
  bool moved = false;
  while (unbegun() && !failure_) {
    const auto path = next_path();
    if (!path) break;
    if (begin(*path)) moved = true;  // else the path has no room any more
  }
  return moved;
}

std::optional<std::size_t> Sender::next_path() {
  if (whole()) return idle_path() ? std::optional<std::size_t>(0) : std::nullopt;
  const base::TimePoint now = base::Clock::now();
  if (now - looked_ >= look_interval) look_at_queues(now);
  return earliest(now);
}

void Sender::look_at_queues(base::TimePoint now) noexcept {
  looked_ = now;
  for (Path& path : paths_) {
    int bytes = 0;
    if (::ioctl(path.socket, SIOCOUTQ, &bytes) == 0 && bytes >= 0)
      path.load.queued(now, static_cast<std::size_t>(bytes));
  }
}

std::optional<std::size_t> Sender::earliest(base::TimePoint now) const noexcept {
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

bool Sender::begin(std::size_t which) {
  Path& path = paths_[which];
  Outgoing& frame = newest();
  path.frame = &frame;
  path.index = frame.begun;
  path.sent = 0;
  make_head(path);
  const std::size_t tags = path.tail_bytes > 0 ? 2 : 1;
  if (!write(which)) {
    path.frame = nullptr;
    return false;  // the tags were not sent: what comes next uses their numbers
  }
  if (path.tags) path.tags->skip(tags);
  ++frame.begun;
  return true;
}

// A frame that goes whole and without a tag is sent as it stands: its header is the head.
void Sender::make_head(Path& path) const {
  if (whole() && !path.tags) return;
  const Outgoing& frame = *path.frame;
  const Piece piece{frame.sequence, static_cast<std::uint32_t>(path.index), frame.header};
  const auto begin = path.head.begin();
  const auto end = whole() ? std::ranges::copy(frame.header, begin).out
                           : std::ranges::copy(encode(piece), begin).out;
  path.tail_bytes = 0;
  path.head_bytes = static_cast<std::size_t>(end - begin);
  if (!path.tags) return;
  path.tags->begin();
  path.tags->add(std::span(path.head).first(path.head_bytes));
  std::ranges::copy(path.tags->end(), end);
  path.head_bytes += base::tag_bytes;
  const std::span<const std::byte> payload = payload_of(path);
  if (!path.payload_tags || payload.empty()) return;
  path.tags->begin(1);
  path.tags->add(payload);
  path.tail = path.tags->end();
  path.tail_bytes = path.tail.size();
}

std::span<const std::byte> Sender::payload_of(const Path& path) const noexcept {
  const std::span<const std::byte> payload = path.frame->payload;
  if (whole()) return payload;
  const PiecePlace place = place_of(path.index, payload.size());
  return payload.subspan(place.offset, place.bytes);
}

Sender::Parts Sender::parts_of(const Path& path) const noexcept {
  std::span<const std::byte> head = path.frame->header;
  if (path.head_bytes > 0) head = std::span(path.head).first(path.head_bytes);
  return {head, payload_of(path), std::span(path.tail).first(path.tail_bytes)};
}

// True when the socket took anything. What it left is written once the socket has room.
bool Sender::write(std::size_t which) {
  Path& path = paths_[which];
  const Parts parts = parts_of(path);
  const ssize_t result = write(path.socket, parts, path.sent);
  if (result < 0) {
    if (errno != EAGAIN && !failure_) failure_ = Failure{which, errno};
    path.room = false;
    return false;
  }
  if (!whole()) path.load.took(base::Clock::now(), static_cast<std::size_t>(result));
  path.sent += static_cast<std::size_t>(result);
  if (path.sent < parts.bytes()) {
    path.room = false;
  } else {
    ++path.frame->written;
    path.frame = nullptr;
  }
  return true;
}

// The kernel takes at most 2 GiB in one call, whatever the size of the frame.
ssize_t Sender::write(int socket, Parts parts, std::size_t already) noexcept {
  for (auto* part : {&parts.head, &parts.payload, &parts.tail}) *part = drop(*part, already);
  if (parts.head.empty() && parts.tail.empty())
    return without_interruption(
        [&] { return ::send(socket, parts.payload.data(), parts.payload.size(), MSG_NOSIGNAL); });
  if (parts.bytes() <= gathered_bytes) {
    std::array<std::byte, gathered_bytes> piece;
    std::byte* end = piece.data();
    for (const auto part : {parts.head, parts.payload, parts.tail})
      if (!part.empty()) end = std::copy(part.begin(), part.end(), end);
    return without_interruption(
        [&] { return ::send(socket, piece.data(), parts.bytes(), MSG_NOSIGNAL); });
  }
  std::array<iovec, 3> list{
      iovec{const_cast<std::byte*>(parts.head.data()), parts.head.size()},
      iovec{const_cast<std::byte*>(parts.payload.data()), parts.payload.size()},
      iovec{const_cast<std::byte*>(parts.tail.data()), parts.tail.size()}};
  msghdr message{};
  message.msg_iov = list.data();
  message.msg_iovlen = parts.tail.empty() ? 2 : 3;
  return without_interruption([&] { return ::sendmsg(socket, &message, MSG_NOSIGNAL); });
}

}  // namespace rondo::tcp
