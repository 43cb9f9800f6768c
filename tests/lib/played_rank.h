// SPDX-License-Identifier: Apache-2.0
//
// The steps of a rank, or of a stranger, at the rendezvous of rank 0.
#pragma once

#include <poll.h>

#include <array>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/handshake.h"
#include "lib/ranks.h"
#include "lib/wire/stream.h"

namespace rondo::tests {

// Connects to rank 0, which may not listen yet.
inline wire::Stream connected(std::uint16_t port) {
  const base::TimePoint until = base::after(base::Clock::now(), milliseconds{20'000});
  for (;;) {
    std::string why;
    base::FileDescriptor socket =
        wire::connect_to(wire::loopback_address(port).front(), until, why);
    if (socket) return wire::Stream(std::move(socket));
    if (base::Clock::now() >= until) throw std::runtime_error(why);
    wire::pause_until(base::after(base::Clock::now(), milliseconds{2}));
  }
}

template <std::size_t size>
std::array<std::byte, size> receive(wire::Stream& stream) {
  std::array<std::byte, size> bytes{};
  const base::TimePoint until = base::after(base::Clock::now(), milliseconds{20'000});
  while (!stream.take(bytes)) {
    if (stream.ended() || !wire::wait_for(stream.descriptor(), POLLIN, until))
      throw std::runtime_error("nothing came");
    stream.read();
  }
  return bytes;
}

// Does the handshake with rank 0.
inline base::Verdict greet(wire::Stream& stream, const base::Claim& claim,
                           std::string_view secret) {
  base::Initiator initiator(claim, 0, secret);
  stream.send(initiator.hello());
  stream.send(initiator.answer(receive<base::challenge_bytes>(stream)));
  return base::Initiator::read_verdict(receive<base::verdict_bytes>(stream));
}

// Plays a rank until it is welcome.
inline wire::Stream welcomed(std::uint16_t port, std::uint32_t rank, std::uint32_t size,
                             std::string_view secret) {
  wire::Stream stream = connected(port);
  if (greet(stream, {base::Purpose::rendezvous, rank, size, 0, 0, 0}, secret) !=
      base::Verdict::welcome)
    throw std::runtime_error("not welcome");
  return stream;
}

}  // namespace rondo::tests
