// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/frame_sender.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace rondo::tcp {
namespace {

// Up to this size a copy into one buffer costs less than a list of buffers for the kernel.
constexpr std::size_t gathered_bytes = 4096 + transports::frame_header_bytes + 2 * base::tag_bytes;

std::span<const std::byte> drop(std::span<const std::byte> part, std::size_t& bytes) noexcept {
  const std::size_t here = std::min(part.size(), bytes);
  bytes -= here;
  return part.subspan(here);
}

}  // namespace

// The kernel takes at most 2 GiB in one call, whatever the size of the frame.
ssize_t FrameSender::write(Parts parts, std::size_t already) noexcept {
  for (auto* part : {&parts.head, &parts.payload, &parts.tail}) *part = drop(*part, already);
  ssize_t result = 0;
  if (parts.head.empty() && parts.tail.empty()) {
    do result = ::send(socket_, parts.payload.data(), parts.payload.size(), MSG_NOSIGNAL);
    while (result < 0 && errno == EINTR);
    return result;
  }
  if (parts.bytes() <= gathered_bytes) {
    std::array<std::byte, gathered_bytes> piece;
    std::byte* end = piece.data();
    for (const auto part : {parts.head, parts.payload, parts.tail})
      if (!part.empty()) end = std::copy(part.begin(), part.end(), end);
    do result = ::send(socket_, piece.data(), parts.bytes(), MSG_NOSIGNAL);
    while (result < 0 && errno == EINTR);
    return result;
  }
  std::array<iovec, 3> list{
      iovec{const_cast<std::byte*>(parts.head.data()), parts.head.size()},
      iovec{const_cast<std::byte*>(parts.payload.data()), parts.payload.size()},
      iovec{const_cast<std::byte*>(parts.tail.data()), parts.tail.size()}};
  msghdr message{};
  message.msg_iov = list.data();
  message.msg_iovlen = parts.tail.empty() ? 2 : 3;
  do result = ::sendmsg(socket_, &message, MSG_NOSIGNAL);
  while (result < 0 && errno == EINTR);
  return result;
}

FrameSender::Parts FrameSender::make_tags(const transports::HeaderBytes& header,
                                          std::span<const std::byte> payload) {
  tags_->begin();
  tags_->add(header);
  const base::Tag tag = tags_->end();
  std::ranges::copy(tag, std::ranges::copy(header, head_.begin()).out);
  if (!payload_tags_ || payload.empty()) return {head_, payload, {}};
  tags_->begin(1);
  tags_->add(payload);
  tail_ = tags_->end();
  return {head_, payload, tail_};
}

transports::Send FrameSender::send(const transports::HeaderBytes& header,
                                   std::span<const std::byte> payload) {
  refused_ = busy_ || !room_ || error_ != 0;
  if (refused_) return transports::Send::full;
  Parts parts = tags_ ? make_tags(header, payload) : Parts{header, payload, {}};
  const ssize_t result = write(parts, 0);
  if (result < 0) {
    if (errno != EAGAIN) error_ = errno;
    room_ = false;
    refused_ = true;
    return transports::Send::full;  // the tags were not sent: the next frame uses their numbers
  }
  if (tags_) tags_->skip(parts.tail.empty() ? 1 : 2);
  const auto taken = static_cast<std::size_t>(result);
  if (taken == parts.bytes()) return transports::Send::done;
  room_ = false;
  busy_ = true;
  if (!tags_)
    parts.head =
        std::span(head_).first(std::ranges::copy(header, head_.begin()).out - head_.begin());
  under_way_ = parts;
  sent_ = taken;
  if (payload.size() > transports::eager_bytes) return transports::Send::queued;
  kept_.assign(payload.begin(), payload.end());
  under_way_.payload = kept_;
  return transports::Send::copied;
}

bool FrameSender::resume(transports::Link& link) {
  if (!busy_ || !room_ || error_ != 0) return false;
  const ssize_t result = write(under_way_, sent_);
  if (result < 0) {
    if (errno != EAGAIN) error_ = errno;
    room_ = false;
    return false;
  }
  sent_ += static_cast<std::size_t>(result);
  if (sent_ < under_way_.bytes()) {
    room_ = false;
    return true;
  }
  busy_ = false;
  under_way_ = {};
  link.sink().sent(link);
  return true;
}

}  // namespace rondo::tcp
