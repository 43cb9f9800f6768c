// SPDX-License-Identifier: Apache-2.0
//
// Unix sockets of type SOCK_SEQPACKET: each message comes whole or not at all, and may carry
// descriptors. All of it without blocking.
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

// A socket that listens under an abstract name. Throws Error(system).
base::FileDescriptor listen_at_name(std::string_view name, int backlog);
// Begins and ends at once. The result is invalid when that was not possible: errno says why
// (ECONNREFUSED: nobody listens, EAGAIN: too many wait there already).
base::FileDescriptor connect_to_name(std::string_view name);

// Returns 0 or an errno value. The limit of open files bounds the descriptors in flight between
// sockets for each user. ETOOMANYREFS means that this bound is reached: send the message again
// later.
int send_packet(int socket, std::span<const std::byte> message,
                std::span<const int> descriptors = {});

struct Packet {
  std::size_t bytes = 0;  // of the message, as far as the buffer holds it
  int error = 0;          // an errno value; EAGAIN when there is none
  bool ended = false;     // the other end is closed
  bool cut = false;  // longer than the buffer, or with more descriptors than a message may have
  std::array<base::FileDescriptor, most_descriptors> descriptors;
};
// with_descriptors false: descriptors that come with the message are dropped. true: when this
// process has no number left for one, the message stays in the socket with all its descriptors, and
// the error is EMFILE: receive it again later.
Packet receive_packet(int socket, std::span<std::byte> buffer, bool with_descriptors);

// Whose process is at the other end, as the system knows it.
struct PeerProcess {
  pid_t process = 0;  // 0: not visible from here
  uid_t user = 0;
};
// "Too many open files", and the remedy (base/shortage.h).
std::string describe_shortage(int error);

PeerProcess process_behind(int socket) noexcept;

}  // namespace rondo::host
