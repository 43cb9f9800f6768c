// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "transports/connect/connections.h"
#include "transports/tcp/frame_receiver.h"
#include "transports/transport.h"

namespace rondo::tcp {

// A socket that epoll watches. flag() gets the events that epoll reported.
class Watched {
 public:
  virtual ~Watched() = default;
  virtual void flag(std::uint32_t events) noexcept = 0;
};

// Lists what the transport asks of its links, of one connection or of several. Thread-bound (the
// driver of the transport), without locks.
class TcpLink : public transports::Link {
 public:
  using Link::Link;
  // Takes a connection that has been set up. The caller watches the result for as long as the link
  // is open. Null: the link is broken, and the event keeps the socket.
  virtual Watched* attach(connect::Event& event) = 0;
  // True when the link has a socket and is not broken.
  virtual bool open() const noexcept = 0;
  // Sends and receives what is possible now, and notices the end of the link. Returns whether
  // anything happened. direct: see FrameReceiver.
  virtual bool progress(bool direct) = 0;
  // Called every few milliseconds for a link that is not urgent and leaves this host: see
  // PacedSocket.
  virtual void pace(base::TimePoint now, bool restrained) noexcept = 0;
  // Stops the link: nothing moves any more, and the sink hears no more of it. Its sockets stay open
  // until it is destroyed, because their end would reach the peer before the cause does.
  virtual void halt() noexcept = 0;
  // After halt(): closes the link's connections in order once the peer's host has all that was sent
  // over them. Drops what has come meanwhile. at_once: closes them in any case. Returns whether
  // they are closed.
  virtual bool leave(bool at_once) noexcept = 0;
  // The reminder has come that the link asked connect::Connections::remind for.
  virtual void reminded() noexcept = 0;
  // An interface of this host is down. Ends the link if one of its connections runs over it.
  virtual void interface_lost(std::string_view interface, std::string_view what) = 0;
  // Ends the link and tells the sink.
  virtual void break_off(Errc code, std::string_view what, bool clean) = 0;
  virtual bool expecting() const noexcept = 0;
  virtual bool waits_for_room() const noexcept = 0;
  // True when progress() would do something, as far as the flags tell.
  virtual bool has_work() const noexcept = 0;
};

}  // namespace rondo::tcp
