// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/frame_receiver.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text.h"
#include "transports/connect/socket.h"

namespace rondo::tcp {
namespace {

// A whole frame up to this size is read into one piece and copied from there: cheaper than a list
// of pieces.
constexpr std::size_t one_piece = 4096 + transports::frame_header_bytes + 2 * base::tag_bytes;
// Of one link before the others, the urgent lane above all, have their turn.
constexpr std::size_t most_at_once = std::size_t{1} << 20;

template <class Call>
ssize_t without_interruption(Call call) noexcept {
  ssize_t result = 0;
  do result = call();
  while (result < 0 && errno == EINTR);
  return result;
}

}  // namespace

bool FrameReceiver::has_work() const noexcept {
  if (!flagged() || refused_ || end_ || held()) return false;
  return expecting_ || !accepted_;
}

bool FrameReceiver::receive(transports::Link& link, transports::Sink& sink, bool direct) {
  if (refused_ || end_) return false;
  const auto next = sink.expected(link);
  expecting_ = next.has_value() || (!accepted_ && sink.awaits_header(link));
  if (!next) {
    if (accepted_ || held() || !(flagged() || (direct && expecting_))) return false;
    const bool moved = read_header(link, sink);
    const auto after = accepted_ ? sink.expected(link) : std::nullopt;
    return after ? read_frame(link, sink, *after) || moved : moved;
  }
  bool moved = false;
  if (held()) {
    if (!show_header(link, sink)) return false;
    moved = true;
  } else if (!direct && !flagged()) {
    return false;
  }
  return read_frame(link, sink, *next) || moved || end_;
}

// Without an expectation nothing but the header is read, and only where one is awaited or epoll has
// seen something.
bool FrameReceiver::read_header(transports::Link& link, transports::Sink& sink) {
  const std::size_t wanted = head_bytes_ - header_bytes_;
  const ssize_t result =
      without_interruption([&] { return ::recv(socket_, head() + header_bytes_, wanted, 0); });
  if (result <= 0) {
    ended(result);
    return end_.has_value();
  }
  header_bytes_ += static_cast<std::size_t>(result);
  if (static_cast<std::size_t>(result) < wanted)
    readable_ = false;
  else
    show_header(link, sink);
  return true;
}

bool FrameReceiver::is_genuine() {
  if (!tags_ || genuine_) return true;
  tags_->begin();
  tags_->add(head_.header);
  genuine_ = tags_->matches(head_.tag);
  if (!genuine_) end_ = End{base::wrong_tag, false, Errc::authentication};
  if (payload_tags_) tags_->begin();
  return genuine_;
}

bool FrameReceiver::show_header(transports::Link& link, transports::Sink& sink) {
  if (!is_genuine()) return false;
  switch (sink.arrived(link, head_.header)) {
    case transports::Header::accept:
      accepted_ = true;
      return true;
    case transports::Header::hold:
      return false;
    case transports::Header::refuse:
      break;
  }
  refused_ = true;
  return false;
}

// The rest of the header, the payload and its tag in one system call.
ssize_t FrameReceiver::read(std::span<std::byte> payload, std::span<std::byte> tail) noexcept {
  const std::span<std::byte> header(head() + header_bytes_, head_bytes_ - header_bytes_);
  if (header.empty() && tail.empty())
    return without_interruption([&] { return ::recv(socket_, payload.data(), payload.size(), 0); });
  const std::size_t all = header.size() + payload.size() + tail.size();
  if (all <= one_piece) {
    std::array<std::byte, one_piece> piece;
    const ssize_t result =
        without_interruption([&] { return ::recv(socket_, piece.data(), all, 0); });
    const std::byte* from = piece.data();
    for (std::size_t left = result > 0 ? static_cast<std::size_t>(result) : 0;
         const auto to : {header, payload, tail}) {
      const std::size_t count = std::min(left, to.size());
      if (count > 0) std::memcpy(to.data(), from, count);
      from += count;
      left -= count;
    }
    return result;
  }
  std::array<iovec, 3> parts{iovec{header.data(), header.size()},
                             iovec{payload.data(), payload.size()},
                             iovec{tail.data(), tail.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = tail.empty() ? 2 : 3;
  return without_interruption([&] { return ::recvmsg(socket_, &message, 0); });
}

// Placed bytes may land before the header has been looked at; it is looked at before anything is
// said of them.
bool FrameReceiver::read_frame(transports::Link& link, transports::Sink& sink,
                               const transports::Receive& next) {
  const bool placed = next.destination != nullptr;
  const std::size_t header_left = head_bytes_ - header_bytes_;
  const std::size_t payload_left = next.bytes - std::min(next.bytes, payload_bytes_);
  const std::size_t tail_left = payload_tags_ && next.bytes > 0 ? tail_.size() - tail_bytes_ : 0;
  std::span<std::byte> to, tail;
  if (placed) {
    to = {next.destination + payload_bytes_, std::min(payload_left, most_at_once)};
  } else {
    std::copy_n(carry_.begin(), carry_bytes_, slot_.memory.begin());
    to = std::span(slot_.memory).subspan(carry_bytes_);
    to = to.first(std::min(payload_left, to.size()));
  }
  if (to.size() == payload_left) tail = std::span(tail_).last(tail_left);
  const std::size_t wanted = header_left + to.size() + tail.size();
  std::size_t count = 0;
  if (wanted > 0) {
    const ssize_t result = read(to, tail);
    if (result <= 0) {
      ended(result);
      return false;
    }
    count = static_cast<std::size_t>(result);
    readable_ = readable_ && count == wanted;
  }
  const std::size_t header_count = std::min(count, header_left);
  header_bytes_ += header_count;
  if (header_bytes_ < head_bytes_) return true;
  if (!accepted_ && !show_header(link, sink)) {
    if (!refused_ && !end_ && count > header_count)
      end_ = End{"a frame that was announced has been held back", false};
    return true;
  }
  const std::size_t payload_count = std::min(count - header_count, to.size());
  payload_bytes_ += payload_count;
  const std::size_t tail_count = count - header_count - payload_count;
  tail_bytes_ += tail_count;
  if (payload_tags_) tags_->add(to.first(payload_count));
  if (!placed && payload_count > 0) show_payload(link, sink, payload_count);
  if (payload_bytes_ < next.bytes || tail_count < tail_left) return true;
  if (tail_left > 0 && !tags_->matches(tail_)) {
    end_ = End{base::wrong_tag, false, Errc::authentication};
    return true;
  }
  header_bytes_ = payload_bytes_ = carry_bytes_ = tail_bytes_ = 0;
  accepted_ = genuine_ = false;
  sink.received(link);
  return true;
}

void FrameReceiver::show_payload(transports::Link& link, transports::Sink& sink,
                                 std::size_t count) {
  const auto view = std::span<const std::byte>(slot_.memory).first(carry_bytes_ + count);
  const std::size_t used = std::min(view.size(), sink.data(link, view));
  carry_bytes_ = view.size() - used;
  if (carry_bytes_ >= carry_.size()) {
    end_ = End{"received bytes have been left unused", false};
    carry_bytes_ = 0;
  }
  std::copy_n(view.begin() + static_cast<std::ptrdiff_t>(used), carry_bytes_, carry_.begin());
}

void FrameReceiver::ended(ssize_t result) {
  if (result < 0 && errno == EAGAIN) {
    readable_ = false;
  } else if (result < 0) {
    end_ = End{base::describe_errno(errno), false};
  } else if (header_bytes_ == 0) {
    end_ = End{"the peer closed the connection", true};
  } else {
    end_ = End{"the peer closed the connection in the middle of a frame", false};
  }
}

}  // namespace rondo::tcp
