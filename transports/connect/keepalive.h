// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace rondo::connect {

// Keeps TCP_USER_TIMEOUT from ending healthy connections. While a peer has no room, the kernel
// counts the time as time without an answer, even if the peer's kernel answers every probe. So a
// rank that computes for longer than the timeout, with its peers ahead of it, would be taken for
// dead. look() extends the timeout of such a connection until probes stay unanswered. Thread-safe.
// An error of a socket is ignored here: whoever reads the socket sees it.
class Keepalive {
 public:
  explicit Keepalive(milliseconds timeout) noexcept : timeout_(timeout) {}
  void watch(int socket);
  // Call it before the socket is closed: another descriptor may get its number at once.
  void forget(int socket);
  // Looks at every connection. Call it every interval(). False when there is no connection.
  bool look(base::TimePoint now);
  milliseconds interval() const noexcept { return std::max(timeout_ / 4, milliseconds{10}); }

 private:
  struct Watched {
    int socket = -1;
    std::optional<base::TimePoint> stalled_since;
  };

  const milliseconds timeout_;
  std::mutex mutex_;
  std::vector<Watched> watched_;  // under mutex_
};

}  // namespace rondo::connect
