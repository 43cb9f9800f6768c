// SPDX-License-Identifier: Apache-2.0
//
// Waits for the end of torch's TCP store, over a connection of its own: torch's client writes a
// stack trace into the log when its store ends.
#pragma once

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>

namespace rondo::python {

// Thread-bound.
class Probe {
 public:
  explicit Probe(const addrinfo& to)
      : socket_(
            ::socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, to.ai_protocol)) {
    if (socket_ >= 0) static_cast<void>(::connect(socket_, to.ai_addr, to.ai_addrlen));
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;
  ~Probe() {
    if (socket_ >= 0) ::close(socket_);
  }

  bool connected(std::chrono::milliseconds limit) const {
    sockaddr_storage peer{};
    socklen_t bytes = sizeof peer;
    return socket_ >= 0 && wait_for(POLLOUT, limit) &&
           ::getpeername(socket_, reinterpret_cast<sockaddr*>(&peer), &bytes) == 0;
  }
  void await_end(std::chrono::milliseconds limit) const { wait_for(POLLIN, limit); }

 private:
  bool wait_for(short events, std::chrono::milliseconds limit) const {
    pollfd entry{socket_, events, 0};
    return ::poll(&entry, 1, static_cast<int>(limit.count())) == 1;
  }

  const int socket_;
};

// Returns when nobody listens there any more, or after `limit` and the time of the name lookup.
inline void await_end(const std::string& host, int port, std::chrono::milliseconds limit) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) return;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> found(list, &::freeaddrinfo);
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next)
    if (const Probe probe(*one); probe.connected(std::chrono::milliseconds{500}))
      return probe.await_end(limit);
}

}  // namespace rondo::python
