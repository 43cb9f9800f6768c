// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/file_descriptor.h"
#include "transports/connect/connections.h"
#include "transports/tcp/frame_receiver.h"
#include "transports/tcp/frame_sender.h"
#include "transports/tcp/paced_socket.h"
#include "transports/tcp/tcp_link.h"

namespace rondo::tcp {

// A link of one connection. The first send opens it, or the peer does. Sending and receiving are
// independent of each other. A failure of either ends the link.
class SoleLink final : public TcpLink, private Watched {
 public:
  SoleLink(int peer, transports::Lane lane, const transports::Sinks& sinks, std::string name,
           connect::Connections& connections, BorrowSlot& slot);
  ~SoleLink() override { close(); }

  transports::Send send(const transports::HeaderBytes& header,
                        std::span<const std::byte> payload) override;

  Watched* attach(connect::Event& event) override;
  bool open() const noexcept override { return state_ == State::open; }
  bool progress(bool direct) override;
  void pace(base::TimePoint now, bool restrained) noexcept override { pace_.pace(now, restrained); }
  void halt() noexcept override;
  bool leave(bool at_once) noexcept override;
  void reminded() noexcept override {}
  void interface_lost(std::string_view interface, std::string_view what) override;
  void break_off(Errc code, std::string_view what, bool clean) override;
  bool expecting() const noexcept override { return receiver_.expecting(); }
  bool waits_for_room() const noexcept override { return sender_.waits_for_room(); }
  bool has_work() const noexcept override;

 private:
  enum class State { closed, opening, open, broken };

  void flag(std::uint32_t events) noexcept override;
  void close() noexcept;

  State state_ = State::closed;
  std::string route_, interface_;
  connect::Connections& connections_;
  base::FileDescriptor socket_;
  FrameSender sender_;
  FrameReceiver receiver_;
  PacedSocket pace_;
};

}  // namespace rondo::tcp
