// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace rondo::connect {

// Keeps TCP_USER_TIMEOUT from ending healthy connections. The kernel counts the time in which a
// peer has no room as time without an answer, even when that peer's kernel answers every probe; so
// a rank that computes for longer than the timeout while its peers are ahead of it would be taken
// for dead. For such a connection the timeout is moved on, until probes stay without an answer.
// Thread-safe.
class Keepalive {
 public:
  explicit Keepalive(milliseconds timeout) noexcept : timeout_(timeout) {}
  void watch(int socket);
  // To be called before the socket is closed: its number may be another's right after.
  void forget(int socket);
  // Looks at every connection; due every interval(). False when there is none.
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
