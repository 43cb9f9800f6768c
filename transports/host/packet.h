// SPDX-License-Identifier: Apache-2.0
//
// Unix sockets of type SOCK_SEQPACKET: each message comes whole or not at all, and may carry
// descriptors. Nothing here blocks. Reentrant: one thread at a time reads a socket.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/file_descriptor.h"
#include "base/shortage.h"

namespace rondo::host {

inline constexpr std::size_t most_descriptors = 2;

// Makes a socket that listens under an abstract name. Throws Error(system).
base::FileDescriptor listen_at_name(std::string_view name, int backlog);
// Connects at once. If that is not possible the result is invalid, and errno says why
// (ECONNREFUSED: nobody listens, EAGAIN: too many connections wait there already).
base::FileDescriptor connect_to_name(std::string_view name);

// Returns 0 or an errno. The limit of open files also bounds how many descriptors each user may
// have in flight between sockets. ETOOMANYREFS means that this bound is reached: send the message
// again later.
int send_packet(int socket, std::span<const std::byte> message,
                std::span<const int> descriptors = {});

struct Packet {
  std::size_t bytes = 0;  // length of the message, or of the part that fits in the buffer
  int error = 0;          // an errno; EAGAIN when there is no message
  bool ended = false;     // the other end is closed
  bool cut = false;       // it was longer than the buffer, or had more descriptors than it may have
  std::array<base::FileDescriptor, most_descriptors> descriptors;
};
// Without with_descriptors, descriptors that come with the message are dropped. With it, if this
// process has no number left for one, the message stays in the socket with all its descriptors. The
// error is then EMFILE: receive it again later.
Packet receive_packet(int socket, std::span<std::byte> buffer, bool with_descriptors);

// The process at the other end of a socket, as the system knows it.
struct PeerProcess {
  pid_t process = 0;  // 0: not visible from here
  uid_t user = 0;
};
// "Too many open files", and the remedy (base/shortage.h).
std::string describe_shortage(int error);

// If the system does not tell: no process, and a user that nobody has.
PeerProcess process_behind(int socket) noexcept;

}  // namespace rondo::host
