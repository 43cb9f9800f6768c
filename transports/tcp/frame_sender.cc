// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/frame_sender.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace rondo {
namespace {

// Up to here a copy into one piece costs less than the kernel's look at a list of pieces.
constexpr std::size_t one_piece = 4096 + frame_header_bytes;

}  // namespace

// Never more than 2 GiB at a time, whatever the frame: the kernel cuts there too.
ssize_t FrameSender::write(const HeaderBytes& header, std::size_t already,
                           std::span<const std::byte> payload) noexcept {
  ssize_t result = 0;
  if (already >= header.size()) {
    const auto rest = payload.subspan(already - header.size());
    do result = ::send(socket_, rest.data(), rest.size(), MSG_NOSIGNAL);
    while (result < 0 && errno == EINTR);
    return result;
  }
  const std::size_t header_left = header.size() - already;
  if (header_left + payload.size() <= one_piece) {
    std::array<std::byte, one_piece> piece;
    std::memcpy(piece.data(), header.data() + already, header_left);
    if (!payload.empty()) std::memcpy(piece.data() + header_left, payload.data(), payload.size());
    do result = ::send(socket_, piece.data(), header_left + payload.size(), MSG_NOSIGNAL);
    while (result < 0 && errno == EINTR);
    return result;
  }
  std::array<iovec, 2> parts{iovec{const_cast<std::byte*>(header.data()) + already, header_left},
                             iovec{const_cast<std::byte*>(payload.data()), payload.size()}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  do result = ::sendmsg(socket_, &message, MSG_NOSIGNAL);
  while (result < 0 && errno == EINTR);
  return result;
}

Send FrameSender::send(const HeaderBytes& header, std::span<const std::byte> payload, std::uint64_t cookie) {
  refused_ = busy_ || !room_ || error_ != 0;
  if (refused_) return Send::full;
  const ssize_t result = write(header, 0, payload);
  if (result < 0) {
    if (errno != EAGAIN) error_ = errno;
    room_ = false;
    refused_ = true;
    return Send::full;
  }
  const auto taken = static_cast<std::size_t>(result);
  if (taken == header.size() + payload.size()) return Send::done;
  room_ = false;
  busy_ = true;
  header_ = header;
  sent_ = taken;
  payload_ = payload;
  cookie_ = cookie;
  if (payload.size() > eager_bytes) return Send::queued;
  kept_.assign(payload.begin(), payload.end());
  payload_ = kept_;
  return Send::copied;
}

bool FrameSender::resume(Link& link, Sink& sink) {
  if (!busy_ || !room_ || error_ != 0) return false;
  const ssize_t result = write(header_, sent_, payload_);
  if (result < 0) {
    if (errno != EAGAIN) error_ = errno;
    room_ = false;
    return false;
  }
  sent_ += static_cast<std::size_t>(result);
  if (sent_ < header_.size() + payload_.size()) {
    room_ = false;
    return true;
  }
  busy_ = false;
  payload_ = {};
  sink.sent(link, cookie_);
  return true;
}

}  // namespace rondo
