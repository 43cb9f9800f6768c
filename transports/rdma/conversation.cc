// SPDX-License-Identifier: Apache-2.0
#include "transports/rdma/conversation.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/text.h"

namespace rondo::rdma {

void Conversation::attach(base::FileDescriptor socket, const base::Agreement& agreed) {
  socket_ = std::move(socket);
  flagged_ = true;
  if (agreed.protection == base::Protection::none) return;
  sending_.emplace(agreed.keys.sending);
  receiving_.emplace(agreed.keys.receiving);
}

void Conversation::tell(const Told& told) {
  const Message message = encode(told);
  unsent_.insert(unsent_.end(), message.begin(), message.end());
  if (sending_) {
    sending_->begin();
    sending_->add(message);
    const base::Tag tag = sending_->end();
    sending_->skip(1);
    unsent_.insert(unsent_.end(), tag.begin(), tag.end());
  }
  flush();
}

void Conversation::flush() {
  while (!unsent_.empty() && socket_) {
    const ssize_t sent =
        ::send(socket_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    // An error is seen again when the socket is read.
    if (sent <= 0) return;
    unsent_.erase(unsent_.begin(), unsent_.begin() + sent);
  }
}

std::optional<Told> Conversation::read_message() {
  flagged_ = flagged_ && socket_ && !end_;
  if (!socket_ || end_) return std::nullopt;
  flush();
  while (come_bytes_ < wire_bytes()) {
    const ssize_t got =
        ::recv(socket_.get(), come_.data() + come_bytes_, wire_bytes() - come_bytes_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      flagged_ = false;
      return std::nullopt;
    }
    if (got < 0)
      end_ = End{Errc::peer_lost, base::describe_errno(errno), true};
    else if (got == 0)
      end_ = End{Errc::peer_lost, "its process closed the connection", true};
    if (got <= 0) {
      flagged_ = false;
      return std::nullopt;
    }
    come_bytes_ += static_cast<std::size_t>(got);
  }
  come_bytes_ = 0;
  Message message;
  std::copy_n(come_.begin(), message_bytes, message.begin());
  if (receiving_) {
    receiving_->begin();
    receiving_->add(message);
    const auto tag = std::span<const std::byte>(come_).subspan(message_bytes);
    if (!receiving_->matches(tag.first<base::tag_bytes>())) {
      end_ = End{Errc::authentication, base::wrong_tag, false};
      return std::nullopt;
    }
  }
  auto told = decode(message);
  if (!told)
    end_ = End{Errc::corrupt, "its message cannot be read: give all ranks one version of Rondo",
               false};
  return told;
}

}  // namespace rondo::rdma
