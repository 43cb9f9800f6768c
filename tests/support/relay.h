// SPDX-License-Identifier: Apache-2.0
//
// A relay between two ranks. It forwards everything, also the handshake, and changes one range of
// bytes.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <rondo/error.h>
#include <rondo/info.h>

#include "base/handshake.h"
#include "lib/settings/reachability.h"
#include "lib/wire/socket.h"

namespace rondo::testing {

using RelayBytes = std::vector<std::byte>;

// A change that the relay makes. In one direction of every connection it holds back `bytes` bytes
// from offset `from` on. When all have arrived it forwards the result of `change`.
struct Attack {
  bool towards_target = true;
  std::size_t from = 0, bytes = 0;
  std::function<RelayBytes(RelayBytes)> change = [](RelayBytes all) { return all; };
};

// Offsets of the first byte after the handshake: towards the target, and from it.
inline constexpr std::size_t behind_proof = 96 + 32, behind_verdict = 96 + 16;

inline RelayBytes altered(RelayBytes all) {
  all.front() ^= std::byte{1};
  return all;
}
inline RelayBytes doubled(RelayBytes all) {
  all.insert(all.end(), all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size()));
  return all;
}
inline RelayBytes dropped(const RelayBytes&) {
  return {};
}

// Connects to 127.0.0.1 from another address of this host. The other end takes it for a connection
// from another host. Returns nothing when this host has no such address.
inline base::FileDescriptor connect_from_outside(std::uint16_t port) {
  for (const InterfaceInfo& one : settings::describe_interfaces({})) {
    if (one.loopback || one.address.find(':') != std::string::npos) continue;
    const wire::Endpoint from = wire::parse_endpoint(one.address + ":1").front(),
                         to = wire::loopback_address(port).front();
    wire::Endpoint any_port = from;
    any_port.set_port(0);
    base::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::bind(socket.get(), any_port.address(), any_port.bytes) == 0 &&
        ::connect(socket.get(), to.address(), to.bytes) == 0)
      return socket;
  }
  return {};
}

// Does the handshake on a blocking socket. Returns the agreement once the other end has answered
// the proof.
inline base::Agreement agree_over(const base::FileDescriptor& socket, const base::Claim& claim,
                                  std::string_view secret) {
  base::Initiator initiator(claim, 0, secret);
  const auto send_all = [&](const auto& bytes) {
    return ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  };
  const auto read_all = [&](auto& bytes) {
    return ::recv(socket.get(), bytes.data(), bytes.size(), MSG_WAITALL) ==
           static_cast<ssize_t>(bytes.size());
  };
  base::ChallengeBytes challenge{};
  base::VerdictBytes verdict{};
  if (!send_all(initiator.hello()) || !read_all(challenge) ||
      !send_all(initiator.answer(challenge)) || !read_all(verdict) ||
      base::Initiator::read_verdict(verdict) != base::Verdict::welcome)
    throw Error(Errc::rendezvous, "the handshake did not end with a welcome");
  return initiator.agreement();
}

// Listens on 127.0.0.1 from its construction to its destruction, on a thread of its own.
class Relay {
 public:
  Relay(const wire::Endpoint& target, Attack attack)
      : target_(target),
        attack_(std::move(attack)),
        listener_(std::move(wire::listen_on(wire::loopback_address(0), 0, 0).front())),
        stop_(::eventfd(0, EFD_CLOEXEC)),
        thread_([this] { run(); }) {}
  ~Relay() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  wire::Endpoint endpoint() const { return wire::own_endpoint(listener_.get()); }

 private:
  struct Way {
    bool attacked = false;
    std::size_t seen = 0;
    RelayBytes held, out;
  };
  struct Pair {
    std::array<base::FileDescriptor, 2> sockets;  // of the connecting rank, of the target
    std::array<Way, 2> ways;                      // bytes from each of them
    bool ended = false;
  };

  void run() {
    for (;;) {
      std::vector<pollfd> entries{{stop_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      for (const Pair& pair : pairs_)
        for (std::size_t side = 0; side < 2; ++side)
          entries.push_back(
              {pair.sockets[side].get(),
               static_cast<short>(POLLIN | (pair.ways[1 - side].out.empty() ? 0 : POLLOUT)), 0});
      if (::poll(entries.data(), entries.size(), -1) < 0) continue;
      if (entries[0].revents != 0) return;
      for (Pair& pair : pairs_) move(pair);
      pairs_.remove_if([](const Pair& pair) { return pair.ended; });
      if (entries[1].revents != 0) take_in();
    }
  }

  void take_in() {
    base::FileDescriptor socket = wire::accept_from(listener_.get());
    if (!socket) return;
    std::string why;
    base::FileDescriptor target =
        wire::connect_to(target_, base::after(base::Clock::now(), milliseconds{10'000}), why);
    if (!target) return;
    Pair& pair = pairs_.emplace_back();
    pair.sockets = {std::move(socket), std::move(target)};
    pair.ways[0].attacked = attack_.bytes > 0 && attack_.towards_target;
    pair.ways[1].attacked = attack_.bytes > 0 && !attack_.towards_target;
  }

  void move(Pair& pair) {
    for (std::size_t side = 0; side < 2; ++side) {
      Way& way = pair.ways[side];
      std::array<std::byte, 4096> part;
      const ssize_t count = ::recv(pair.sockets[side].get(), part.data(), part.size(), 0);
      if (count == 0 || (count < 0 && errno != EAGAIN)) pair.ended = true;
      for (ssize_t i = 0; i < count; ++i) pass(way, part[static_cast<std::size_t>(i)]);
      if (way.out.empty()) continue;
      const ssize_t sent =
          ::send(pair.sockets[1 - side].get(), way.out.data(), way.out.size(), MSG_NOSIGNAL);
      if (sent > 0) way.out.erase(way.out.begin(), way.out.begin() + sent);
      if (sent < 0 && errno != EAGAIN) pair.ended = true;
    }
  }

  void pass(Way& way, std::byte byte) {
    const std::size_t at = way.seen++;
    if (!way.attacked || at < attack_.from || at >= attack_.from + attack_.bytes) {
      way.out.push_back(byte);
      return;
    }
    way.held.push_back(byte);
    if (way.held.size() < attack_.bytes) return;
    const RelayBytes changed = attack_.change(std::move(way.held));
    way.out.insert(way.out.end(), changed.begin(), changed.end());
  }

  const wire::Endpoint target_;
  const Attack attack_;
  base::FileDescriptor listener_, stop_;
  std::list<Pair> pairs_;  // used by the thread only
  std::thread thread_;
};

}  // namespace rondo::testing
