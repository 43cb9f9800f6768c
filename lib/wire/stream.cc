// SPDX-License-Identifier: Apache-2.0
#include "lib/wire/stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "base/bytes.h"
#include "base/text.h"
#include "lib/wire/socket.h"

namespace rondo::wire {
namespace {

constexpr std::size_t frame_prefix_bytes = 8;
constexpr std::size_t refill_bytes = std::size_t{64} << 10;
constexpr std::size_t most_input_bytes = frame_prefix_bytes + most_payload_bytes + base::tag_bytes;

}  // namespace

std::vector<std::byte> make_frame(std::uint16_t type, std::span<const std::byte> payload) {
  base::Writer writer;
  writer.put(static_cast<std::uint32_t>(payload.size()));
  writer.put(type);
  writer.put(std::uint16_t{0});
  writer.put_bytes(payload);
  return writer.take();
}

Stream::Stream(base::FileDescriptor descriptor)
    : descriptor_(std::move(descriptor)), peer_(peer_endpoint(descriptor_.get()).text()) {}

short Stream::events() const noexcept {
  if (ended()) return 0;
  const bool room = input_.size() - taken_ < most_input_bytes;
  return static_cast<short>((room ? POLLIN : 0) | (has_unsent() ? POLLOUT : 0));
}

void Stream::read() {
  std::array<std::byte, 16384> part;
  while (!ended() && input_.size() - taken_ < most_input_bytes) {
    const std::size_t room = most_input_bytes - (input_.size() - taken_);
    const ssize_t count = ::recv(descriptor_.get(), part.data(), std::min(room, part.size()), 0);
    if (count > 0) {
      input_.erase(input_.begin(),
                   input_.begin() + static_cast<std::ptrdiff_t>(std::exchange(taken_, 0)));
      input_.insert(input_.end(), part.begin(), part.begin() + count);
      if (static_cast<std::size_t>(count) < part.size()) return;
    } else if (count == 0) {
      end("connection closed by peer");
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      end(base::describe_errno(errno));
    }
  }
}

void Stream::protect(const base::Agreement& agreed) {
  if (agreed.protection == base::Protection::none) return;
  sending_.emplace(agreed.keys.sending);
  receiving_.emplace(agreed.keys.receiving);
}

void Stream::send(std::span<const std::byte> bytes) {
  if (ended()) return;
  if (sending_ && !shared_.empty())
    later_.insert(later_.end(), bytes.begin(), bytes.end());
  else if (sending_)
    append_with_tags(bytes);
  else
    output_.insert(output_.end(), bytes.begin(), bytes.end());
  write();
}

void Stream::send_shared(std::span<const std::byte> bytes) {
  if (ended()) return;
  if (!shared_.empty()) return send(bytes);
  shared_ = bytes;
  shared_at_ = output_.size();
  write();
}

std::span<const std::byte> Stream::next_part() const noexcept {
  if (!shared_.empty() && sent_ == shared_at_) return shared_;
  const std::size_t end = shared_.empty() ? output_.size() : shared_at_;
  return std::span(output_).subspan(sent_, end - sent_);
}

void Stream::append_with_tags(std::span<const std::byte> frames) {
  while (!frames.empty()) {
    const auto frame =
        frames.first(frame_prefix_bytes + base::load_little<std::uint32_t>(frames.data()));
    sending_->begin();
    sending_->add(frame);
    const base::Tag tag = sending_->end();
    sending_->skip(1);
    output_.insert(output_.end(), frame.begin(), frame.end());
    output_.insert(output_.end(), tag.begin(), tag.end());
    frames = frames.subspan(frame.size());
  }
}

// Makes tags in the order of the wire: first for a few frames of the shared part at a time, then
// for the frames that were sent after it.
void Stream::refill() {
  if (!sending_ || shared_.empty() || sent_ < shared_at_) return;
  output_.clear();
  sent_ = 0;
  std::size_t bytes = 0;
  while (bytes < shared_.size() && bytes < refill_bytes)
    bytes += frame_prefix_bytes + base::load_little<std::uint32_t>(shared_.data() + bytes);
  append_with_tags(shared_.first(bytes));
  shared_ = shared_.subspan(bytes);
  shared_at_ = output_.size();
  if (shared_.empty()) append_with_tags(std::exchange(later_, {}));
}

void Stream::write() {
  while (!ended() && has_unsent()) {
    refill();
    const auto part = next_part();
    const ssize_t count = ::send(descriptor_.get(), part.data(), part.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      const auto bytes = static_cast<std::size_t>(count);
      if (!shared_.empty() && part.data() == shared_.data())
        shared_ = shared_.subspan(bytes);
      else
        sent_ += bytes;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      // The last bytes from the peer are still to be read. So only reading ends the stream, unless
      // nothing can come any more.
      const int error = errno;
      read();
      end(base::describe_errno(error));
    }
  }
  if (!has_unsent()) {
    output_.clear();
    sent_ = shared_at_ = 0;
  }
}

bool Stream::take(std::span<std::byte> to) {
  if (input_.size() - taken_ < to.size()) return false;
  std::copy_n(input_.begin() + static_cast<std::ptrdiff_t>(taken_), to.size(), to.begin());
  taken_ += to.size();
  return true;
}

std::optional<StreamFrame> Stream::take_frame() {
  const auto here = std::span(input_).subspan(taken_);
  if (here.size() < frame_prefix_bytes) return std::nullopt;
  base::Reader reader(here);
  const std::size_t length = reader.get<std::uint32_t>();
  const auto type = reader.get<std::uint16_t>();
  reader.get<std::uint16_t>();
  if (length > most_payload_bytes) {
    end("it sent a frame of " + std::to_string(length) + " bytes, at most " +
        std::to_string(most_payload_bytes) + " are possible");
    taken_ = input_.size();
    return std::nullopt;
  }
  const auto payload = reader.get_bytes(length);
  if (!reader.ok()) return std::nullopt;
  if (receiving_ && here.size() < frame_prefix_bytes + length + base::tag_bytes)
    return std::nullopt;
  if (receiving_) {
    receiving_->begin();
    receiving_->add(here.first(frame_prefix_bytes + length));
    if (!receiving_->matches(here.subspan(frame_prefix_bytes + length).first<base::tag_bytes>())) {
      // The connection may have ended after this frame already; this cause says more.
      why_.clear();
      end(base::wrong_tag, Errc::authentication);
      taken_ = input_.size();
      return std::nullopt;
    }
    taken_ += base::tag_bytes;
  }
  StreamFrame frame{type, {payload.begin(), payload.end()}};
  taken_ += frame_prefix_bytes + length;
  return frame;
}

void Stream::end(std::string why, Errc code) {
  if (ended()) return;
  why_ = std::move(why);
  code_ = code;
}

void Stream::finish_sending() noexcept {
  if (descriptor_) ::shutdown(descriptor_.get(), SHUT_WR);
}

}  // namespace rondo::wire
