// SPDX-License-Identifier: Apache-2.0
#include "transports/host/packet.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <rondo/error.h>

namespace rondo::host {
namespace {

struct Name {
  sockaddr_un address{};
  socklen_t length = 0;
};

Name abstract_name(std::string_view name) {
  Name result;
  result.address.sun_family = AF_UNIX;
  const std::size_t bytes = std::min(name.size(), sizeof result.address.sun_path - 1);
  std::copy_n(name.begin(), bytes, result.address.sun_path + 1);
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
  return result;
}

base::FileDescriptor make_socket() {
  return base::FileDescriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// A union, so that it is aligned as the system wants it.
union ControlBuffer {
  cmsghdr header;
  std::byte bytes[CMSG_SPACE(most_descriptors * sizeof(int))];
};

}  // namespace

base::FileDescriptor listen_at_name(std::string_view name, int backlog) {
  base::FileDescriptor socket = make_socket();
  const Name at = abstract_name(name);
  if (!socket ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&at.address), at.length) != 0 ||
      ::listen(socket.get(), backlog) != 0)
    throw Error(Errc::system, fmt::format("cannot listen at a Unix socket: {}",
                                          std::generic_category().message(errno)));
  return socket;
}

base::FileDescriptor connect_to_name(std::string_view name) {
  base::FileDescriptor socket = make_socket();
  if (!socket) return socket;
  const Name at = abstract_name(name);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&at.address), at.length) == 0)
    return socket;
  const int error = errno;
  socket.reset();
  errno = error;
  return socket;
}

int send_packet(int socket, std::span<const std::byte> message, std::span<const int> descriptors) {
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  ControlBuffer control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.bytes;
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(&control.header), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t result = 0;
  do result = ::sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (result < 0 && errno == EINTR);
  return result < 0 ? errno : 0;
}

namespace {

Packet receive_packet(int socket, std::span<std::byte> buffer, bool with_descriptors, int flags) {
  iovec part{buffer.data(), buffer.size()};
  ControlBuffer control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (with_descriptors) {
    header.msg_control = control.bytes;
    header.msg_controllen = sizeof control.bytes;
  }
  ssize_t result = 0;
  do result = ::recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | flags);
  while (result < 0 && errno == EINTR);
  Packet packet;
  if (result < 0) {
    packet.error = errno;
    return packet;
  }
  packet.bytes = static_cast<std::size_t>(result);
  packet.ended = result == 0;
  packet.cut = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  std::size_t taken = 0;
  for (cmsghdr* one = CMSG_FIRSTHDR(&header); one != nullptr; one = CMSG_NXTHDR(&header, one)) {
    if (one->cmsg_level != SOL_SOCKET || one->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (one->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(one) + i * sizeof(int), sizeof number);
      base::FileDescriptor owned(number);
      if (taken < packet.descriptors.size()) packet.descriptors[taken++] = std::move(owned);
    }
  }
  // The system hands over as many descriptors as fit here. If there were fewer, this process had no
  // numbers left.
  if (with_descriptors && (header.msg_flags & MSG_CTRUNC) != 0 && taken < packet.descriptors.size())
    packet.error = EMFILE;
  return packet;
}

}  // namespace

// Peeks at a message with descriptors, and takes it out only when all of them have come: the system
// drops descriptors that it cannot hand over. Only one thread reads this socket, so it takes out
// the message that it has seen.
Packet receive_packet(int socket, std::span<std::byte> buffer, bool with_descriptors) {
  if (!with_descriptors) return receive_packet(socket, buffer, false, 0);
  Packet packet = receive_packet(socket, buffer, true, MSG_PEEK);
  if (packet.error == 0 && !packet.ended) receive_packet(socket, buffer, false, 0);
  return packet;
}

std::string describe_shortage(int error) {
  return std::generic_category().message(error) + base::remedy_of_shortage(error);
}

PeerProcess process_behind(int socket) noexcept {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return {0, static_cast<uid_t>(-1)};
  return {credentials.pid, credentials.uid};
}

}  // namespace rondo::host
