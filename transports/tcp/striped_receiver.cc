// SPDX-License-Identifier: Apache-2.0
//
// Each path has at most one piece at its head. A piece that may not be taken yet stays in its
// socket, so nothing is reordered in memory and a sender that is ahead waits by itself.
#include "transports/tcp/striped_receiver.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/copy.h"
#include "base/text.h"
#include "transports/connect/socket.h"

namespace rondo::tcp {
namespace {

// After a piece on another path than the first, all paths are read directly for so many frames.
constexpr std::size_t looked_for = 64;
// No valid frame is this far ahead: no network holds so many. For a frame that has passed, the
// difference wraps around to more than this.
constexpr std::uint64_t farthest_frame = std::uint64_t{1} << 32;

}  // namespace

bool StripedReceiver::has_work() const noexcept {
  if (frames_.closed() || end_) return false;
  return std::ranges::any_of(paths_, [&](const Path& path) {
    const bool here = path.known || path.buffered() >= path.head_bytes;
    if (!here || !path.known) return (here || path.flagged()) && (expecting_ || !frames_.held());
    if (path.piece.sequence != sequence_) return false;
    if (!frames_.accepted()) return frames_.collecting();
    if (!frames_.placed() && path.piece.index != next_index_) return false;
    return (path.buffered() > 0 && !path.tail_due) || path.flagged();
  });
}

std::optional<std::size_t> StripedReceiver::closed_alone() const noexcept {
  const auto closed = std::ranges::find_if(paths_, [&](const Path& path) {
    return path.closed || (path.hung_up && waits_for_others(path));
  });
  if (closed == paths_.end() || end_) return std::nullopt;
  return static_cast<std::size_t>(closed - paths_.begin());
}

bool StripedReceiver::waits_for_others(const Path& path) const noexcept {
  if (!path.known) return false;
  if (path.piece.sequence != sequence_) return expecting_ || frames_.accepted();
  return frames_.accepted() && !frames_.placed() && path.piece.index != next_index_;
}

bool StripedReceiver::receive(transports::Link& link, bool direct) {
  if (frames_.closed() || end_) return false;
  bool moved = false;
  if (!frames_.accepted()) {
    const auto next = link.sink().expected(link, 0);
    expecting_ = next || link.sink().awaits_header(link);
    frames_.announce(next);
    if (frames_.held()) {
      if (!next || !frames_.show(link)) return false;
      moved = true;
    } else if (!next) {
      moved = look(link, direct && expecting_);
      if (!frames_.accepted()) return moved;
    }
  }
  pieces_ = pieces_of(frames_.receive().bytes);
  if (begun_.size() * 64 < pieces_) begun_.resize((pieces_ + 63) / 64);
  budget_ = most_at_once;
  for (bool any = true; any && budget_ > 0;) {
    any = false;
    for (std::size_t i = 0; i < paths_.size(); ++i) {
      // A peer that sends little mostly uses the first path. epoll flags the others soon enough.
      const bool ask = direct && (i == 0 || pieces_ > 1 || elsewhere_ > 0);
      if (drain(paths_[i], link, ask)) any = moved = true;
      note_misuse(i);
      if (frames_.closed() || end_) return true;
      if (frames_.accepted() && finished_ == pieces_) return finish_frame(link);
    }
  }
  return moved;
}

// For a link whose sink expects no frame: looks for a header only, and only if one is awaited or
// epoll has flagged a socket.
bool StripedReceiver::look(transports::Link& link, bool ask) {
  bool moved = false;
  for (Path& path : paths_) {
    if (!find_piece(path, ask && &path == &paths_.front(), moved)) {
      if (end_) return true;
      continue;
    }
    if (path.piece.sequence != sequence_) continue;
    frames_.set_header(path.piece.header);
    frames_.show(link);
    note_misuse(static_cast<std::size_t>(&path - paths_.data()));
    return true;
  }
  return moved;
}

bool StripedReceiver::drain(Path& path, transports::Link& link, bool ask) {
  bool moved = false;
  while (budget_ > 0 && find_piece(path, ask, moved)) {
    if (!admit(path, link)) break;
    if (!take(path, link)) break;
    moved = true;
    if (end_ || finished_ == pieces_) break;
  }
  return moved;
}

bool StripedReceiver::find_piece(Path& path, bool ask, bool& moved) {
  if (path.known) return true;
  if (path.buffered() < path.head_bytes) {
    if (path.closed || path.socket < 0 || (!ask && !path.flagged())) return false;
    if (!fill(path)) return false;
    moved = true;
    if (path.buffered() < path.head_bytes) return false;
  }
  const std::span<const std::byte> head(path.ahead.data() + path.begin, path.head_bytes);
  const auto prefix = head.first<piece_prefix_bytes>();
  path.begin += path.head_bytes;
  if (path.tags) {
    path.tags->begin();
    path.tags->add(prefix);
    if (!path.tags->matches(head.last<base::tag_bytes>())) {
      forged(path);
      return false;
    }
    if (path.payload_tags) path.tags->begin();
  }
  const auto piece = decode_piece(prefix);
  if (!piece) {
    damaged(path, "it is no piece of a frame");
    return false;
  }
  path.piece = *piece;
  path.known = true;
  path.checked = false;
  path.done = 0;
  return true;
}

bool StripedReceiver::fill(Path& path) {
  std::memmove(path.ahead.data(), path.ahead.data() + path.begin, path.buffered());
  path.filled -= std::exchange(path.begin, 0);
  const std::size_t wanted = path.ahead.size() - path.filled;
  const ssize_t result = without_interruption(
      [&] { return ::recv(path.socket, path.ahead.data() + path.filled, wanted, 0); });
  if (result <= 0) return ended(path, result);
  path.filled += static_cast<std::size_t>(result);
  path.readable = path.readable && static_cast<std::size_t>(result) == wanted;
  return true;
}

bool StripedReceiver::admit(Path& path, transports::Link& link) {
  const Piece& piece = path.piece;
  if (path.checked) return frames_.placed() || piece.index == next_index_;
  if (piece.sequence - sequence_ >= farthest_frame) {
    damaged(path, "it belongs to a frame that cannot be under way");
    return false;
  }
  if (piece.sequence != sequence_) return false;
  if (frames_.collecting()) {
    frames_.set_header(piece.header);
    frames_.show(link);
  }
  if (!frames_.accepted()) return false;
  if (!check(path)) return false;
  path.checked = true;
  return frames_.placed() || piece.index == next_index_;
}

// Checks what the sender says about a piece against the frame that is being received.
bool StripedReceiver::check(Path& path) {
  const Piece& piece = path.piece;
  if (piece.header != frames_.header()) {
    damaged(path, "the pieces of one frame have different headers");
    return false;
  }
  if (piece.index >= pieces_of(frames_.receive().bytes)) {
    damaged(path, "it lies behind the end of its frame");
    return false;
  }
  std::uint64_t& word = begun_[piece.index / 64];
  const std::uint64_t bit = std::uint64_t{1} << (piece.index % 64);
  if ((word & bit) != 0) {
    damaged(path, "it has come before");
    return false;
  }
  word |= bit;
  return true;
}

// Moves payload of the path's piece. False when nothing had arrived.
bool StripedReceiver::take(Path& path, transports::Link& link) {
  const transports::Receive& frame = frames_.receive();
  const PiecePlace place = place_of(path.piece.index, frame.bytes);
  const std::size_t left = place.bytes - path.done;
  std::span<std::byte> to;
  if (frames_.placed()) {
    to = {frame.destination + place.offset + path.done, left};
  } else {
    to = frames_.room(slot_.memory);
    to = to.first(std::min(left, to.size()));
  }
  std::size_t count = 0;
  if (!to.empty()) {
    const ssize_t result = read(path, to, to.size() == left);
    if (result <= 0) return ended(path, result);
    count = static_cast<std::size_t>(result);
  }
  path.done += count;
  budget_ -= std::min(budget_, count);
  if (path.payload_tags) path.tags->add(to.first(count));
  frames_.came(link, slot_.memory, count);
  if (frames_.closed()) return true;
  if (path.done < place.bytes) return true;
  path.tail_due = path.payload_tags && place.bytes > 0;
  if (!take_tail(path)) return count > 0;
  finish_piece(path);
  return true;
}

bool StripedReceiver::take_tail(Path& path) {
  if (!path.tail_due) return true;
  if (path.buffered() < base::tag_bytes && !fill(path)) return false;
  if (path.buffered() < base::tag_bytes) return false;
  const std::span<const std::byte> ahead(path.ahead);
  const bool right = path.tags->matches(ahead.subspan(path.begin).first<base::tag_bytes>());
  path.begin += base::tag_bytes;
  path.tail_due = false;
  if (!right) forged(path);
  return right;
}

// Reads the bytes that were read ahead, or else from the socket. `all`: the piece's payload ends
// with these bytes, so what follows may be read ahead in the same call.
ssize_t StripedReceiver::read(Path& path, std::span<std::byte> to, bool all) noexcept {
  if (const std::size_t count = std::min(path.buffered(), to.size()); count > 0) {
    base::copy_bytes(to.data(), path.ahead.data() + path.begin, count);
    path.begin += count;
    return static_cast<ssize_t>(count);
  }
  path.begin = path.filled = 0;
  const std::size_t more = all ? path.ahead.size() : 0;
  std::array<iovec, 2> parts{iovec{to.data(), to.size()}, iovec{path.ahead.data(), more}};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = all ? 2 : 1;
  const ssize_t result = without_interruption([&] { return ::recvmsg(path.socket, &message, 0); });
  if (result <= 0) return result;
  const auto taken = static_cast<std::size_t>(result), count = std::min(taken, to.size());
  path.filled = taken - count;
  path.readable = path.readable && taken == to.size() + more;
  return static_cast<ssize_t>(count);
}

void StripedReceiver::finish_piece(Path& path) {
  if (&path != &paths_.front()) elsewhere_ = looked_for;
  path.known = false;
  ++finished_;
  ++next_index_;
}

bool StripedReceiver::finish_frame(transports::Link& link) {
  std::fill_n(begun_.begin(), (pieces_ + 63) / 64, 0);
  ++sequence_;
  elsewhere_ -= std::min<std::size_t>(elsewhere_, 1);
  finished_ = next_index_ = 0;
  frames_.finish(link);
  note_misuse(0);
  return true;
}

void StripedReceiver::note_misuse(std::size_t path) {
  if (!frames_.misuse().empty() && !end_)
    end_ = End{path, std::string(frames_.misuse()), false, Errc::system};
}

// Notes what a failed read means. Always false, so that callers can return it.
bool StripedReceiver::ended(Path& path, ssize_t result) {
  const auto which = static_cast<std::size_t>(&path - paths_.data());
  if (result < 0 && errno == EAGAIN) {
    path.readable = false;
  } else if (result < 0) {
    end_ = End{which, base::describe_errno(errno), false};
  } else if (path.known || path.buffered() > 0) {
    end_ = End{which, "the peer closed the connection in the middle of a frame", false};
  } else {
    path.closed = true;
    const bool all = std::ranges::all_of(paths_, [](const Path& one) { return one.closed; });
    if (all && !frames_.collecting())
      end_ = End{which, "the peer closed the connection in the middle of a frame", false};
    if (all && frames_.collecting()) end_ = End{which, "the peer closed the connection", true};
  }
  return false;
}

void StripedReceiver::forged(const Path& path) {
  end_ = End{static_cast<std::size_t>(&path - paths_.data()), base::wrong_tag, false,
             Errc::authentication};
}

void StripedReceiver::damaged(const Path& path, std::string_view what) {
  end_ = End{static_cast<std::size_t>(&path - paths_.data()),
             "a piece of a frame is damaged: " + std::string(what), false};
}

}  // namespace rondo::tcp
