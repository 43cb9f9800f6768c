// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_descriptor.h"
#include "transports/connect/connections.h"
#include "transports/tcp/bulk_pace.h"
#include "transports/tcp/receiver.h"
#include "transports/tcp/sender.h"
#include "transports/transport.h"

namespace rondo::tcp {

// A link of one or several connections ("paths"). The first send opens them, or the peer does, and
// frames flow once all are open. Sending and receiving are independent of each other; a failure of
// either ends the link. If one of several paths breaks, the link is broken, and the cause names
// that path. If the peer closes one path while others stay open, the link waits for a moment: a
// peer that leaves closes all of them, and what it sent before may still be in flight.
//
// Thread-bound (the driver of the transport), without locks.
class TcpLink final : public transports::Link {
 public:
  // One connection. The transport only calls flag(), with the events that epoll has reported.
  struct Path {
    void flag(std::uint32_t events) noexcept;
    TcpLink* link = nullptr;
    std::size_t index = 0;
    base::FileDescriptor socket;
    std::string route, interface;
    PacedSocket pace;
    bool reset = false;
  };

  TcpLink(int peer, transports::Lane lane, const transports::Sinks& sinks, std::string name,
          std::size_t paths, connect::Connections& connections, BorrowSlot& slot);
  ~TcpLink() override { close(); }

  transports::Send send(const transports::HeaderBytes& header,
                        std::span<const std::byte> payload) override;

  // The functions below are for the transport.
  //
  // Takes a connection that has been set up. The caller watches the result for as long as the link
  // is open. Null: the link is broken, and the event keeps the socket.
  Path* attach(connect::Event& event);
  // True when the link has a socket and is not broken.
  bool open() const noexcept { return state_ != State::broken && attached_ > 0; }
  // Sends and receives what is possible now, and notices the end of the link. Returns whether
  // anything happened. direct: see Receiver.
  bool progress(bool direct);
  // Called every few milliseconds for a link that is not urgent and leaves this host: see
  // PacedSocket.
  void pace(base::TimePoint now, bool restrained) noexcept;
  // Stops the link: nothing moves any more, and the sink hears no more of it. Its sockets stay open
  // until it is destroyed, because their end would reach the peer before the cause does.
  void halt() noexcept;
  // After halt(): closes the link's connections in order once the peer's host has all that was sent
  // over them. Drops what has come meanwhile. at_once: closes them in any case. Returns whether
  // they are closed.
  bool leave(bool at_once) noexcept;
  // The reminder that the link asked of connect::Connections::remind has come. Nobody may have
  // driven the link since, so progress() first looks at what has come.
  void reminded() noexcept { reminder_due_ = true; }
  // An interface of this host is down. Ends the link if one of its connections runs over it.
  void interface_lost(std::string_view interface, std::string_view what);
  // Ends the link and tells the sink.
  void break_off(Errc code, std::string_view what, bool clean);
  bool expecting() const noexcept { return receiver_->expecting(); }
  bool waits_for_room() const noexcept { return sender_.waits_for_room(); }
  // True when progress() would do something, as far as the flags tell.
  bool has_work() const noexcept;

 private:
  enum class State { closed, opening, open, broken };

  void close() noexcept;
  // "path 2 of 2, 10.2.0.1 -> 10.2.0.2 (eth1): connection reset by peer"; of one path only the
  // cause.
  std::string on_path(std::size_t path, std::string_view what) const;
  // A path that seems to have been closed alone, or that was closed before all paths were open.
  std::optional<std::size_t> doubtful() const noexcept;
  void watch_doubtful();
  // Ends the link when a path is doubtful and no byte has come since the reminder was asked for.
  // Returns whether it did.
  bool judge_doubtful();

  State state_ = State::closed;
  connect::Connections& connections_;
  std::vector<Path> paths_;
  std::size_t attached_ = 0;
  Sender sender_;
  const std::unique_ptr<Receiver> receiver_;
  bool reminder_asked_ = false, reminder_due_ = false, moved_since_ = false;
};

}  // namespace rondo::tcp
