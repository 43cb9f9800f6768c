// SPDX-License-Identifier: Apache-2.0
#include "transports/tcp/tcp_link.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/text.h"
#include "transports/connect/socket.h"
#include "transports/tcp/frame_receiver.h"
#include "transports/tcp/last_bytes.h"
#include "transports/tcp/striped_receiver.h"

namespace rondo::tcp {
namespace {

// After this time without a byte, a path that was closed alone counts as broken.
constexpr milliseconds doubt_limit{500};

std::unique_ptr<Receiver> make_receiver(BorrowSlot& slot, std::size_t paths) {
  if (paths == 1) return std::make_unique<FrameReceiver>(slot);
  return std::make_unique<StripedReceiver>(slot, paths);
}

}  // namespace

TcpLink::TcpLink(int peer, transports::Lane lane, const transports::Sinks& sinks, std::string name,
                 std::size_t paths, connect::Connections& connections, BorrowSlot& slot)
    : Link(peer, lane, sinks, std::move(name)),
      connections_(connections),
      paths_(paths),
      sender_(paths),
      receiver_(make_receiver(slot, paths)) {
  for (std::size_t i = 0; i < paths; ++i) {
    paths_[i].link = this;
    paths_[i].index = i;
  }
}

transports::Send TcpLink::send(const transports::HeaderBytes& header,
                               std::span<const std::byte> payload) {
  if (state_ == State::open) return sender_.send(header, payload);
  if (state_ == State::closed) {
    state_ = State::opening;
    connections_.open(peer(), static_cast<int>(lane()));
  }
  return transports::Send::full;
}

TcpLink::Path* TcpLink::attach(connect::Event& event) {
  if (state_ == State::broken) return nullptr;
  Path& path = paths_.at(static_cast<std::size_t>(event.index));
  path.socket = std::move(event.socket);
  path.pace.attach(path.socket.get());
  path.route = std::move(event.route);
  path.interface = std::move(event.interface);
  if (path.index == 0) rename(std::move(event.name));
  sender_.attach(path.index, path.socket.get(), event.speed, event.agreed);
  receiver_->attach(path.index, path.socket.get(), event.agreed);
  ++attached_;
  if (state_ == State::closed) state_ = State::opening;
  if (attached_ == paths_.size()) state_ = State::open;
  return &path;
}

void TcpLink::Path::flag(std::uint32_t events) noexcept {
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) reset = true;
  if ((events & EPOLLIN) != 0) link->receiver_->flag_readable(index);
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) link->receiver_->flag_hang_up(index);
  if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) link->sender_.flag_room(index);
}

void TcpLink::close() noexcept {
  for (Path& path : paths_) {
    if (!path.socket) continue;
    connections_.forget(path.socket.get());
    path.socket.reset();
  }
}

void TcpLink::break_off(Errc code, std::string_view what, bool clean) {
  if (state_ == State::broken) return;
  state_ = State::broken;
  close();
  sink().broken(*this, code, what, clean);
}

std::string TcpLink::on_path(std::size_t path, std::string_view what) const {
  if (paths_.size() == 1) return std::string(what);
  return fmt::format("path {} of {}, {}: {}", path + 1, paths_.size(), paths_[path].route, what);
}

std::optional<std::size_t> TcpLink::doubtful() const noexcept {
  if (paths_.size() == 1) return std::nullopt;  // nothing else can be under way
  if (state_ == State::open) {
    const auto alive = [&](const Path& path) { return !receiver_->hung_up(path.index); };
    // If all have hung up, the receiver finds the end of each after it has read the rest.
    if (std::ranges::none_of(paths_, alive)) return std::nullopt;
    const auto& failure = sender_.failure();
    if (failure && failure->error == EPIPE) return failure->path;
    // Bytes that came over this path may wait for others that never come. Its end is then never
    // read.
    const auto reset = std::ranges::find_if(paths_, [](const Path& path) { return path.reset; });
    if (reset != paths_.end()) return reset->index;
    return receiver_->closed_alone();
  }
  for (const Path& path : paths_)
    if (path.socket && receiver_->hung_up(path.index)) return path.index;
  return std::nullopt;
}

void TcpLink::halt() noexcept {
  state_ = State::broken;
  receiver_->halt();
}

// All paths end together: the peer takes one that ends while others last for broken.
bool TcpLink::leave(bool at_once) noexcept {
  bool delivered = true;
  for (const Path& path : paths_)
    if (path.socket && !drop_and_look(path.socket.get())) delivered = false;
  if (!delivered && !at_once) return false;
  for (const Path& path : paths_) {
    if (!path.socket) continue;
    connections_.forget(path.socket.get());
    end_sending(path.socket.get());
  }
  for (Path& path : paths_) path.socket.reset();
  return true;
}

void TcpLink::watch_doubtful() {
  reminder_asked_ = true;
  moved_since_ = false;
  connections_.remind(peer(), static_cast<int>(lane()), doubt_limit);
}

void TcpLink::pace(base::TimePoint now, bool restrained) noexcept {
  for (Path& path : paths_)
    if (path.socket) path.pace.pace(now, restrained);
}

bool TcpLink::judge_doubtful() {
  if (!std::exchange(reminder_due_, false)) return false;
  reminder_asked_ = false;
  const auto path = doubtful();
  if (!path || moved_since_ || receiver_->end()) return false;
  break_off(Errc::peer_lost, on_path(*path, "the peer closed this connection alone"), false);
  return true;
}

// All sockets stay open until the link is destroyed: their end would reach the peer before the
// cause does, and would look as if this rank had left.
void TcpLink::interface_lost(std::string_view interface, std::string_view what) {
  if (!open()) return;
  const auto lost = std::ranges::find_if(
      paths_, [&](const Path& path) { return path.socket && path.interface == interface; });
  if (lost == paths_.end()) return;
  state_ = State::broken;
  const std::string cause =
      paths_.size() == 1 ? fmt::format("{}: {}", lost->route, what) : on_path(lost->index, what);
  sink().broken(*this, Errc::peer_lost, cause, false);
}

bool TcpLink::has_work() const noexcept {
  if (!open()) return false;
  if (reminder_due_ || (!reminder_asked_ && doubtful())) return true;
  if (state_ != State::open) return false;
  const auto& failure = sender_.failure();
  return sender_.has_work() || (failure && failure->error != EPIPE) || receiver_->has_work() ||
         receiver_->end();
}

bool TcpLink::progress(bool direct) {
  if (!open()) return false;
  bool moved = false;
  if (state_ == State::open) {
    moved = sender_.resume(*this);
    if (receiver_->receive(*this, direct)) moved = true;
  }
  if (!open()) return true;  // a sink has halted it
  moved_since_ = moved_since_ || moved;
  if (judge_doubtful()) return true;
  const auto& end = receiver_->end();
  const auto& failure = sender_.failure();
  const bool closed_before = failure && failure->error == EPIPE;
  if (!end && !reminder_asked_ && doubtful()) watch_doubtful();
  // Frames that the peer sent before it closed must still be read, so a failure to send waits for
  // that.
  if (!end && (!failure || closed_before || moved)) return moved;
  // The system reports an error once. If sending has met it, the receiving half sees only a clean
  // end.
  if (end && (!failure || closed_before || !end->clean)) {
    const std::string what = end->clean ? end->what : on_path(end->path, end->what);
    break_off(end->clean ? Errc::peer_left : end->code, what, end->clean);
  } else {
    break_off(Errc::peer_lost, on_path(failure->path, base::describe_errno(failure->error)), false);
  }
  return true;
}

}  // namespace rondo::tcp
