// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/file_descriptor.h"
#include "transports/tcp/frame_receiver.h"
#include "transports/tcp/frame_sender.h"
#include "transports/tcp/setup.h"
#include "transports/transport.h"

namespace rondo {

// One connection: asked for at the first send, or brought by the peer; then two independent halves.
class TcpLink final : public Link {
 public:
  TcpLink(int peer, Priority lane, std::string name, Setup& setup, BorrowSlot& slot);
  ~TcpLink() override { close(); }

  int peer() const noexcept override { return peer_; }
  Priority lane() const noexcept override { return lane_; }
  Send send(const HeaderBytes& header, std::span<const std::byte> payload, std::uint64_t cookie) override;
  std::byte* window(std::uint64_t, std::size_t) noexcept override { return nullptr; }
  std::string describe() const override { return name_; }

  // The rest is for the transport.
  void attach(FileDescriptor socket, std::string name);
  int socket() const noexcept { return socket_.get(); }
  // Ends the link and tells the sink.
  void break_off(Sink& sink, Errc code, std::string_view what, bool clean);
  bool open() const noexcept { return state_ == State::open; }
  // Sends and receives what can be now, and notices the end. Returns whether anything happened. direct: see FrameReceiver.
  bool progress(Sink& sink, bool direct);
  // What epoll said of the socket.
  void flag(std::uint32_t events) noexcept;
  bool expecting() const noexcept { return receiver_.expecting(); }
  bool waits_for_room() const noexcept { return sender_.waits_for_room(); }
  // Going by the flags, progress() would do something.
  bool has_work() const noexcept;

 private:
  enum class State { closed, opening, open, broken };

  void close() noexcept;

  const int peer_;
  const Priority lane_;
  State state_ = State::closed;
  std::string name_;
  Setup& setup_;
  FileDescriptor socket_;
  FrameSender sender_;
  FrameReceiver receiver_;
};

}  // namespace rondo
