// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "transports/connect/connections.h"
#include "transports/tcp/paced_socket.h"
#include "transports/tcp/striped_receiver.h"
#include "transports/tcp/striped_sender.h"
#include "transports/tcp/tcp_link.h"

namespace rondo::tcp {

// A link of several connections ("paths"). Frames flow in pieces (see piece.h) once all paths are
// open. If one breaks, the link is broken, and the cause names that path. If the peer closes one
// path while others stay open, the link waits for a moment: a peer that leaves closes all of them,
// and what it sent before may still be in flight.
class StripedLink final : public TcpLink {
 public:
  StripedLink(int peer, transports::Lane lane, const transports::Sinks& sinks, std::string name,
              std::size_t paths, connect::Connections& connections, BorrowSlot& slot);
  ~StripedLink() override { close(); }

  transports::Send send(const transports::HeaderBytes& header,
                        std::span<const std::byte> payload) override;

  Watched* attach(connect::Event& event) override;
  bool open() const noexcept override { return state_ != State::broken && attached_ > 0; }
  bool progress(bool direct) override;
  void pace(base::TimePoint now, bool restrained) noexcept override;
  void halt() noexcept override;
  bool leave(bool at_once) noexcept override;
  // Nobody may have driven the link since it asked, so progress() first looks at what has come.
  void reminded() noexcept override { reminder_due_ = true; }
  void interface_lost(std::string_view interface, std::string_view what) override;
  void break_off(Errc code, std::string_view what, bool clean) override;
  bool expecting() const noexcept override { return receiver_.expecting(); }
  bool waits_for_room() const noexcept override { return sender_.waits_for_room(); }
  bool has_work() const noexcept override;

 private:
  enum class State { closed, opening, open, broken };
  struct Path final : Watched {
    void flag(std::uint32_t events) noexcept override;
    StripedLink* link = nullptr;
    std::size_t index = 0;
    base::FileDescriptor socket;
    std::string route, interface;
    PacedSocket pace;
    bool reset = false;
  };

  void close() noexcept;
  // "path 2 of 2, 10.2.0.1 -> 10.2.0.2 (eth1): connection reset by peer"
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
  StripedSender sender_;
  StripedReceiver receiver_;
  bool reminder_asked_ = false, reminder_due_ = false, moved_since_ = false;
};

}  // namespace rondo::tcp
