// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/frame_receiver.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>

#include "base/copy.h"
#include "base/text.h"
#include "transports/connect/socket.h"

namespace rondo::tcp {
namespace {

// A whole frame up to this size is read into one buffer and copied from there, which is cheaper
// than a list of buffers.
constexpr std::size_t one_piece = 4096 + transports::frame_header_bytes + 2 * base::tag_bytes;
}  // namespace

bool FrameReceiver::has_work() const noexcept {
  return flagged() && !frames_.closed() && !end_ && !frames_.held();
}

bool FrameReceiver::receive_one(transports::Link& link, bool direct) {
  if (frames_.closed() || end_) return false;
  bool moved = false;
  if (!frames_.accepted()) {
    const auto next = link.sink().expected(link, 0);
    expecting_ = next || link.sink().awaits_header(link);
    frames_.announce(next);
    if (frames_.held()) {
      if (!next || !show_header(link)) return false;
      moved = true;
    } else if (!flagged() && !(direct && expecting_)) {
      return false;
    } else if (!next) {
      moved = read_header(link);
      if (!frames_.accepted()) return moved;
    }
  } else if (!direct && !flagged()) {
    return false;
  }
  return read_frame(link) || moved || end_;
}

std::size_t FrameReceiver::take_ahead(std::span<std::byte> to) noexcept {
  const std::size_t count = std::min(buffered(), to.size());
  base::copy_bytes(to.data(), ahead_.data() + ahead_begin_, count);
  ahead_begin_ += count;
  return count;
}

// For a link whose sink expects no frame: reads only if a header is awaited or epoll has flagged
// the socket. Behind a large payload comes another one, which is not worth a copy.
bool FrameReceiver::read_header(transports::Link& link) {
  const std::span<std::byte> rest = frames_.head_rest();
  if (buffered() == 0) {
    const bool small = frames_.receive().bytes <= ahead_.size() / 2;
    const std::size_t wanted = small ? ahead_.size() : rest.size();
    const ssize_t result =
        without_interruption([&] { return ::recv(socket_, ahead_.data(), wanted, 0); });
    if (result <= 0) {
      ended(result);
      return end_.has_value();
    }
    ahead_begin_ = 0;
    ahead_end_ = static_cast<std::size_t>(result);
    readable_ = readable_ && ahead_end_ == wanted;
  }
  frames_.head_came(take_ahead(rest));
  if (frames_.head_complete()) show_header(link);
  return true;
}

bool FrameReceiver::is_genuine() {
  if (!tags_ || genuine_) return true;
  tags_->begin();
  tags_->add(frames_.header());
  genuine_ = tags_->matches(frames_.trailer());
  if (!genuine_) end_ = End{0, base::wrong_tag, false, Errc::authentication};
  if (payload_tags_) tags_->begin();
  return genuine_;
}

bool FrameReceiver::show_header(transports::Link& link) {
  if (!is_genuine()) return false;
  const bool accepted = frames_.show(link);
  settle();
  return accepted;
}

// Reads the rest of the header, the payload and its tag: what was read ahead, else in one system
// call.
ssize_t FrameReceiver::read(std::span<std::byte> payload, std::span<std::byte> tail) noexcept {
  const std::span<std::byte> header = frames_.head_rest();
  if (buffered() > 0) {
    std::size_t count = 0;
    for (const auto to : {header, payload, tail}) count += take_ahead(to);
    return static_cast<ssize_t>(count);
  }
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
      base::copy_bytes(to.data(), from, count);
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

// Placed bytes may land before the header has been checked. It is checked before the sink hears of
// them.
bool FrameReceiver::read_frame(transports::Link& link) {
  const std::size_t header_left = frames_.head_rest().size();
  const std::size_t payload_left = frames_.left();
  const std::size_t tail_left =
      payload_tags_ && frames_.receive().bytes > 0 ? tail_.size() - tail_bytes_ : 0;
  std::span<std::byte> to = frames_.room(slot_.memory), tail;
  to = to.first(std::min(to.size(), most_at_once));
  if (to.size() == payload_left) tail = std::span(tail_).last(tail_left);
  const std::size_t wanted = header_left + to.size() + tail.size();
  const bool ahead = buffered() > 0;
  std::size_t count = 0;
  if (wanted > 0) {
    const ssize_t result = read(to, tail);
    if (result <= 0) {
      ended(result);
      return false;
    }
    count = static_cast<std::size_t>(result);
    readable_ = readable_ && (ahead || count == wanted);
  }
  const std::size_t header_count = std::min(count, header_left);
  frames_.head_came(header_count);
  if (!frames_.head_complete()) return true;
  if (!frames_.accepted() && !show_header(link)) {
    if (frames_.held() && count > header_count)
      end_ = End{0, "a frame that was announced has been held back", false};
    return true;
  }
  const std::size_t payload_count = std::min(count - header_count, to.size());
  const std::size_t tail_count = count - header_count - payload_count;
  tail_bytes_ += tail_count;
  if (payload_tags_) tags_->add(to.first(payload_count));
  frames_.came(link, slot_.memory, payload_count);
  if (frames_.left() > 0 || tail_count < tail_left) return settle();
  if (tail_left > 0 && !tags_->matches(tail_)) {
    end_ = End{0, base::wrong_tag, false, Errc::authentication};
    return true;
  }
  tail_bytes_ = 0;
  genuine_ = false;
  frames_.finish(link);
  return settle();
}

// Ends the link if the sink has misused it. Always true: something has been read.
bool FrameReceiver::settle() {
  if (!frames_.misuse().empty()) end_ = End{0, std::string(frames_.misuse()), false, Errc::system};
  return true;
}

void FrameReceiver::ended(ssize_t result) {
  if (result < 0 && errno == EAGAIN) {
    readable_ = false;
  } else if (result < 0) {
    end_ = End{0, base::describe_errno(errno), false};
  } else if (frames_.at_boundary()) {
    end_ = End{0, "the peer closed the connection", true};
  } else {
    end_ = End{0, "the peer closed the connection in the middle of a frame", false};
  }
}

}  // namespace rondo::tcp
