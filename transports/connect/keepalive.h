// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transports/connect/tcp_state.h"
#include "transports/transport.h"

namespace rondo::connect {

// TCP segments with data that the open connections have sent, and those of them that were sent
// again because the network had lost them.
struct Segments {
  std::uint64_t sent = 0, resent = 0;
};

// Keeps TCP_USER_TIMEOUT from ending healthy connections. While a peer has no room, the kernel
// counts the time as time without an answer, even if the peer's kernel answers every probe. So a
// rank that computes for longer than the timeout, with its peers ahead of it, would be taken for
// dead. look() extends the timeout of such a connection until probes stay unanswered. Thread-safe.
// An error of a socket is ignored here: whoever reads the socket sees it.
//
// look() also finds connections that lose large segments again and again, while segments of the
// peer arrive. The path then takes smaller packets than this host's interface, and drops larger
// ones silently (an MTU black hole).
class Keepalive {
 public:
  explicit Keepalive(milliseconds timeout) noexcept : timeout_(timeout) {}
  // The connection of a link.
  struct Place {
    int peer = 0, lane = 0, index = 0;
  };
  // Called under a lock, at every look() that finds a black hole. what: the cause in words.
  using BlackHole = std::function<void(const Place&, int socket, const std::string& what)>;
  void watch(int socket, const Place& place);
  // Call it before the socket is closed: another descriptor may get its number at once.
  void forget(int socket);
  // Looks at every connection. Call it every interval(). False when there is no connection.
  bool look(base::TimePoint now, const BlackHole& found);
  // The kernel's counts over all connections together.
  Segments segments();
  milliseconds interval() const noexcept { return std::max(timeout_ / 8, milliseconds{10}); }

 private:
  // When nothing has been acknowledged since, and what the kernel said then.
  struct Unanswered {
    base::TimePoint since;
    TcpState then;
  };
  struct Watched {
    int socket = -1;
    Place place;
    std::optional<base::TimePoint> stalled_since;
    std::optional<Unanswered> unanswered;
  };
  std::string black_hole(Watched& one, const TcpState& state, base::TimePoint now) const;

  const milliseconds timeout_;
  std::mutex mutex_;
  std::vector<Watched> watched_;  // under mutex_
};

}  // namespace rondo::connect
