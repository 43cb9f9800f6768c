// SPDX-License-Identifier: Apache-2.0
#include "transports/connect/keepalive.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>

namespace rondo::connect {
namespace {

// After this many unanswered probes the timeout is not extended any more.
constexpr unsigned unanswered_probes = 3;
// Every path takes segments of 512 bytes, so segments below this are not lost for their size.
constexpr std::int64_t least_large = 1000;

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

void Keepalive::watch(int socket, const Place& place) {
  const std::lock_guard lock(mutex_);
  watched_.push_back({socket, place, {}, {}});
}

void Keepalive::forget(int socket) {
  const std::lock_guard lock(mutex_);
  std::erase_if(watched_, [&](const Watched& one) { return one.socket == socket; });
}

Segments Keepalive::segments() {
  const std::lock_guard lock(mutex_);
  Segments all;
  for (const Watched& one : watched_)
    if (const auto state = read_tcp_state(one.socket)) {
      all.sent += state->sent_segments;
      all.resent += state->resent_segments;
    }
  return all;
}

// Returns the cause in words; empty if there is no black hole, or it is not certain yet. The peer
// probes a connection that is silent for a quarter of timeout_, unless it waits for
// acknowledgements itself. A short outage of this direction looks alike, so the path gets nearly as
// long as a silent peer. `since` is up to interval() late, and timeout_ must not be over before the
// next look().
std::string Keepalive::black_hole(Watched& one, const TcpState& state, base::TimePoint now) const {
  if (state.segments_in_flight == 0 ||
      (one.unanswered && one.unanswered->then.acknowledged_bytes != state.acknowledged_bytes))
    one.unanswered.reset();
  if (state.segments_in_flight == 0) return {};
  if (!one.unanswered) one.unanswered = {now, state};
  const auto& [since, then] = *one.unanswered;
  int queued = 0;
  if (now - since < timeout_ - 2 * interval() ||
      state.received_segments == then.received_segments ||
      state.resent_segments == then.resent_segments || ::ioctl(one.socket, SIOCOUTQ, &queued) != 0)
    return {};
  if (queued < static_cast<std::int64_t>(state.unsent_bytes) +
                   std::int64_t{state.segments_in_flight} * least_large)
    return {};
  return fmt::format(
      "large segments ({} bytes) have been lost for {} s, while small ones arrive from the peer: "
      "the path drops everything from this host, or takes smaller packets than its interface. Then "
      "give all interfaces and switches on it one MTU, let ICMP \"fragmentation needed\" through, "
      "or "
      "set the sysctl net.ipv4.tcp_mtu_probing=1",
      state.segment_bytes, std::chrono::ceil<std::chrono::seconds>(now - since).count());
}

bool Keepalive::look(base::TimePoint now, const BlackHole& found) {
  const std::lock_guard lock(mutex_);
  for (Watched& one : watched_) {
    const auto state = read_tcp_state(one.socket);
    if (!state) continue;
    if (const std::string what = black_hole(one, *state, now); !what.empty())
      found(one.place, one.socket, what);
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
