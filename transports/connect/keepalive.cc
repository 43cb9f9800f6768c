// SPDX-License-Identifier: Apache-2.0
#include "transports/connect/keepalive.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

#include "transports/connect/tcp_state.h"

namespace rondo::connect {
namespace {

// After this many unanswered probes the timeout is not extended any more.
constexpr unsigned unanswered_probes = 3;

// Data waits, but none is in flight: the peer's receive window is closed, and the kernel probes it.
bool is_stalled(const TcpState& state) {
  return state.segments_in_flight == 0 && state.unsent_bytes > 0 &&
         state.unanswered_probes < unanswered_probes;
}

void set_timeout(int socket, milliseconds timeout) {
  const auto value = static_cast<unsigned>(std::min<std::int64_t>(timeout.count(), 0x7fffffff));
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, sizeof value);
}

}  // namespace

void Keepalive::watch(int socket) {
  const std::lock_guard lock(mutex_);
  watched_.push_back({socket, {}});
}

void Keepalive::forget(int socket) {
  const std::lock_guard lock(mutex_);
  std::erase_if(watched_, [&](const Watched& one) { return one.socket == socket; });
}

bool Keepalive::look(base::TimePoint now) {
  const std::lock_guard lock(mutex_);
  for (Watched& one : watched_) {
    const auto state = read_tcp_state(one.socket);
    if (!state) continue;
    if (is_stalled(*state)) {
      // The kernel counts from its first probe, which cannot be older than the last look.
      if (!one.stalled_since) one.stalled_since = now - interval();
      set_timeout(one.socket, std::chrono::ceil<milliseconds>(now - *one.stalled_since) + timeout_);
    } else if (one.stalled_since && state->unsent_bytes == 0) {
      one.stalled_since.reset();
      set_timeout(one.socket, timeout_);
    }
  }
  return !watched_.empty();
}

}  // namespace rondo::connect
