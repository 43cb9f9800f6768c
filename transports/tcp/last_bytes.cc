// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/last_bytes.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>

#include "transports/connect/socket.h"
#include "transports/connect/tcp_state.h"

namespace rondo::tcp {
namespace {

constexpr std::size_t most_dropped = std::size_t{64} << 20;

// With MSG_TRUNC the kernel drops the bytes and copies nothing. A peer that never stops sending
// must not hold this rank.
void drop_arrived(int socket) noexcept {
  for (std::size_t dropped = 0; dropped < most_dropped;) {
    const ssize_t count = ::recv(socket, nullptr, most_dropped - dropped, MSG_TRUNC | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    dropped += static_cast<std::size_t>(count);
  }
}

}  // namespace

bool drop_and_look(int socket) noexcept {
  drop_arrived(socket);
  const auto state = connect::read_tcp_state(socket);
  if (!state || state->closed) return true;
  return state->unsent_bytes == 0 &&
         (state->segments_in_flight == 0 || connect::is_within_host(socket));
}

void end_sending(int socket) noexcept {
  // The keepalive of this rank, which extends the timeout of a peer that does not read, ends here.
  const unsigned no_timeout = 0;
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &no_timeout, sizeof no_timeout);
  ::shutdown(socket, SHUT_WR);
}

}  // namespace rondo::tcp
