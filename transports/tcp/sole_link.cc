// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/sole_link.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>

#include "base/text.h"
#include "transports/connect/socket.h"
#include "transports/tcp/last_bytes.h"

namespace rondo::tcp {

SoleLink::SoleLink(int peer, transports::Lane lane, const transports::Sinks& sinks,
                   std::string name, connect::Connections& connections, BorrowSlot& slot)
    : TcpLink(peer, lane, sinks, std::move(name)), connections_(connections), receiver_(slot) {}

transports::Send SoleLink::send(const transports::HeaderBytes& header,
                                std::span<const std::byte> payload) {
  if (state_ == State::open) return sender_.send(header, payload);
  if (state_ == State::closed) {
    state_ = State::opening;
    connections_.open(peer(), static_cast<int>(lane()));
  }
  return transports::Send::full;
}

Watched* SoleLink::attach(connect::Event& event) {
  if (state_ == State::broken) return nullptr;
  socket_ = std::move(event.socket);
  rename(std::move(event.name));
  route_ = std::move(event.route);
  interface_ = std::move(event.interface);
  sender_.attach(socket_.get(), event.agreed);
  receiver_.attach(socket_.get(), event.agreed);
  pace_.attach(socket_.get());
  state_ = State::open;
  return this;
}

void SoleLink::close() noexcept {
  if (!socket_) return;
  connections_.forget(socket_.get());
  socket_.reset();
}

void SoleLink::interface_lost(std::string_view interface, std::string_view what) {
  if (state_ == State::open && interface_ == interface)
    break_off(Errc::peer_lost, fmt::format("{}: {}", route_, what), false);
}

void SoleLink::break_off(Errc code, std::string_view what, bool clean) {
  if (state_ == State::broken) return;
  state_ = State::broken;
  close();
  sink().broken(*this, code, what, clean);
}

void SoleLink::halt() noexcept {
  state_ = State::broken;
  receiver_.halt();
}

bool SoleLink::leave(bool at_once) noexcept {
  if (!socket_) return true;
  if (!drop_and_look(socket_.get()) && !at_once) return false;
  connections_.forget(socket_.get());
  end_sending(socket_.get());
  socket_.reset();
  return true;
}

void SoleLink::flag(std::uint32_t events) noexcept {
  if ((events & EPOLLIN) != 0) receiver_.flag_readable();
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) receiver_.flag_hang_up();
  if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) sender_.flag_room();
}

bool SoleLink::has_work() const noexcept {
  if (!open()) return false;
  const bool failed = sender_.error() != 0 && sender_.error() != EPIPE;
  return sender_.has_work() || failed || receiver_.has_work() || receiver_.end();
}

bool SoleLink::progress(bool direct) {
  if (!open()) return false;
  bool moved = sender_.resume(*this);
  if (receiver_.receive(*this, direct)) moved = true;
  if (!open()) return true;
  const auto& end = receiver_.end();
  const int error = sender_.error();
  const bool closed_before = error == EPIPE;  // in order
  // Frames that the peer sent before it closed must still be read, so a failure to send waits for
  // that.
  if (!end && (error == 0 || closed_before || moved)) return moved;
  // The system reports an error once. If sending has met it, the receiving half sees only a clean
  // end.
  if (end && (error == 0 || closed_before || !end->clean))
    break_off(end->clean ? Errc::peer_left : end->code, std::string(end->what), end->clean);
  else
    break_off(Errc::peer_lost, base::describe_errno(error), false);
  return true;
}

}  // namespace rondo::tcp
