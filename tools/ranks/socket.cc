// SPDX-License-Identifier: Apache-2.0
#include "tools/ranks/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <system_error>
#include <vector>

namespace rondo::tools {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

[[noreturn]] void refuse(const std::string& call, int cause = errno) {
  throw std::system_error(cause, std::generic_category(), call);
}

AddressList resolve(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int code =
      ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (code != 0)
    throw std::runtime_error(fmt::format("address '{}': {}", endpoint.host, ::gai_strerror(code)));
  return AddressList(found, &::freeaddrinfo);
}

base::FileDescriptor make_socket(const addrinfo& address) {
  base::FileDescriptor socket(
      ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) refuse("socket");
  return socket;
}

void set_no_delay(const base::FileDescriptor& socket) {
  const int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

void wait_for(std::span<pollfd> watched, Deadline deadline) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  if (left.count() <= 0) throw std::runtime_error("a neighbour did not answer in time");
  const int timeout = static_cast<int>(std::min<long long>(left.count(), 1000));
  if (::poll(watched.data(), watched.size(), timeout) < 0 && errno != EINTR) refuse("poll");
}

void wait_for(const base::FileDescriptor& socket, short events, Deadline deadline) {
  pollfd one{socket.get(), events, 0};
  wait_for(std::span(&one, 1), deadline);
}

// Returns the bytes moved; 0 when the call would block or was interrupted.
std::size_t moved(ssize_t result, const char* call) {
  if (result > 0) return static_cast<std::size_t>(result);
  if (result == 0) throw std::runtime_error("a neighbour closed its connection");
  if (errno != EAGAIN && errno != EINTR) refuse(call);
  return 0;
}

std::size_t try_send(const base::FileDescriptor& socket, std::span<const std::byte> bytes) {
  return moved(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), "send");
}

std::size_t try_receive(const base::FileDescriptor& socket, std::span<std::byte> bytes) {
  return moved(::recv(socket.get(), bytes.data(), bytes.size(), 0), "recv");
}

}  // namespace

Endpoint parse_endpoint(const std::string& text) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0)
    throw std::runtime_error(fmt::format("no address in '{}'", text));
  std::string host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  return {host, static_cast<std::uint16_t>(std::strtoul(text.c_str() + colon + 1, nullptr, 10))};
}

base::FileDescriptor listen_at(Endpoint& endpoint, std::uint16_t first, std::uint16_t last) {
  int cause = 0;
  for (std::uint32_t port = first; port <= std::max(first, last); ++port) {
    endpoint.port = static_cast<std::uint16_t>(port);
    const AddressList address = resolve(endpoint);
    base::FileDescriptor listener = make_socket(*address);
    if (::bind(listener.get(), address->ai_addr, address->ai_addrlen) == 0 &&
        ::listen(listener.get(), 16) == 0) {
      sockaddr_storage bound{};
      socklen_t length = sizeof bound;
      if (::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0)
        refuse("getsockname");
      // The port stands at the same place in an IPv4 and an IPv6 address.
      endpoint.port = ntohs(reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
      return listener;
    }
    cause = errno;
  }
  refuse(fmt::format("cannot listen at {}", endpoint.host), cause);
}

base::FileDescriptor connect_to(const Endpoint& endpoint, Deadline deadline) {
  const AddressList address = resolve(endpoint);
  base::FileDescriptor socket = make_socket(*address);
  if (::connect(socket.get(), address->ai_addr, address->ai_addrlen) != 0) {
    if (errno != EINPROGRESS)
      refuse(fmt::format("connect to {} port {}", endpoint.host, endpoint.port));
    pollfd one{socket.get(), POLLOUT, 0};
    while (one.revents == 0) wait_for(std::span(&one, 1), deadline);
    int cause = 0;
    socklen_t length = sizeof cause;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &cause, &length);
    if (cause != 0)
      refuse(fmt::format("connect to {} port {}", endpoint.host, endpoint.port), cause);
  }
  set_no_delay(socket);
  return socket;
}

base::FileDescriptor accept_one(const base::FileDescriptor& listener, Deadline deadline) {
  for (;;) {
    base::FileDescriptor socket(
        ::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      set_no_delay(socket);
      return socket;
    }
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) refuse("accept");
    wait_for(listener, POLLIN, deadline);
  }
}

void bound_buffers(const base::FileDescriptor& socket, std::size_t bytes) {
  const int size = static_cast<int>(bytes);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &size, sizeof size);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
}

void send_all(const base::FileDescriptor& socket, std::span<const std::byte> bytes,
              Deadline deadline) {
  while (!bytes.empty()) {
    const std::size_t sent = try_send(socket, bytes);
    bytes = bytes.subspan(sent);
    if (sent == 0) wait_for(socket, POLLOUT, deadline);
  }
}

void receive_all(const base::FileDescriptor& socket, std::span<std::byte> bytes,
                 Deadline deadline) {
  while (!bytes.empty()) {
    const std::size_t got = try_receive(socket, bytes);
    bytes = bytes.subspan(got);
    if (got == 0) wait_for(socket, POLLIN, deadline);
  }
}

base::FileDescriptor accept_with_token(const base::FileDescriptor& listener,
                                       std::span<const std::byte> token,
                                       std::chrono::milliseconds patience, Deadline deadline) {
  std::vector<std::byte> shown(token.size());
  for (;;) {
    base::FileDescriptor candidate = accept_one(listener, deadline);
    try {
      receive_all(candidate, shown,
                  std::min(deadline, std::chrono::steady_clock::now() + patience));
    } catch (const std::runtime_error&) {
      // A failure of a stranger is not reported.
      if (std::chrono::steady_clock::now() >= deadline) throw;
      continue;
    }
    if (std::equal(shown.begin(), shown.end(), token.begin())) return candidate;
  }
}

void stream(const base::FileDescriptor& to, std::size_t to_send, const base::FileDescriptor& from,
            std::size_t to_receive, std::span<std::byte> chunk, Deadline deadline) {
  // Where ranks outnumber cores, it is faster to yield the core a few times than to sleep at once.
  constexpr int yields = 16;
  for (int idle = 0; to_send + to_receive > 0;) {
    const std::size_t sent =
        to_send == 0 ? 0 : try_send(to, chunk.first(std::min(chunk.size(), to_send)));
    const std::size_t got =
        to_receive == 0 ? 0 : try_receive(from, chunk.first(std::min(chunk.size(), to_receive)));
    to_send -= sent;
    to_receive -= got;
    idle = sent + got > 0 ? 0 : idle + 1;
    if (idle == 0) continue;
    if (idle <= yields) {
      ::sched_yield();
      continue;
    }
    std::array<pollfd, 2> both{
        {{to_send > 0 ? to.get() : -1, POLLOUT, 0}, {to_receive > 0 ? from.get() : -1, POLLIN, 0}}};
    wait_for(both, deadline);
    idle = 0;
  }
}

}  // namespace rondo::tools
