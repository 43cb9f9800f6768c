// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <rondo/error.h>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/handshake_driver.h"
#include "transports/host/packet.h"

namespace rondo::host {

// A rank with which this one has exchanged descriptors, and the connection that was used.
struct Peer {
  int rank = 0;
  base::FileDescriptor socket;
  PeerProcess process;
};

using Descriptors = std::array<base::FileDescriptor, most_descriptors>;

// This rank offers the same in every exchange.
struct Offer {
  int rank = 0;
  int size = 1;
  std::string_view secret;
  std::uint64_t job = 0;
  std::array<int, most_descriptors> descriptors{};  // every peer gets these
  // Takes the descriptors of a peer that has proved itself. It is called again when the exchange
  // with that peer had to begin anew. Throws Error when they are not as they must be; what() then
  // tells the user what is wrong ("its size is not sealed").
  std::function<void(int rank, Descriptors descriptors)> receive;
};

// One connection, from its beginning until both ends have the other's descriptors. After the
// handshake, one message with descriptors goes in each direction. While descriptors are short, here
// or in flight, it tries again: see next_try(). Thread-bound, without locks. A failure sets the
// state `ended`.
class Exchange {
 public:
  enum class State {
    begun,   // the peer has proved nothing
    proved,  // the peer is a rank of this job
    met,     // done: call take()
    ended,   // failed: why() and code() say more
  };

  // The side that connects; `peer` is the rank that it means to reach.
  Exchange(const Offer& own, base::FileDescriptor socket, int peer, base::TimePoint now);
  // The side that has accepted.
  Exchange(const Offer& own, base::FileDescriptor socket, base::TimePoint now);

  int socket() const noexcept { return socket_.get(); }
  State state() const noexcept { return state_; }
  // The peer's rank; -1 while the accepting side does not know it.
  int rank() const noexcept { return rank_; }
  base::TimePoint begun() const noexcept { return begun_; }
  // Takes what has come and answers. wanted(rank) tells whether this rank still needs an exchange
  // with that rank.
  void go_on(const std::function<bool(int rank)>& wanted);
  // When to call go_on() again although nothing has come, because descriptors were short.
  base::TimePoint next_try() const noexcept { return next_try_; }
  // The errno of the shortage that holds this exchange up; 0: nothing is short.
  int shortage() const noexcept { return shortage_; }
  Peer take();
  // Why it has ended. Without a code a new exchange may succeed: neither end has refused.
  const std::string& why() const noexcept { return why_; }
  std::optional<Errc> code() const noexcept { return code_; }
  // Tells a peer that has proved itself why this rank gives up, so that all ranks end with the same
  // cause.
  void give_up(std::string_view why) const noexcept;

 private:
  using Wanted = std::function<bool(int rank)>;

  bool step(const Wanted& wanted);
  bool same_user() const noexcept;
  void end(std::string why, std::optional<Errc> code = {});
  void say(std::span<const std::byte> message);
  void take_handshake(std::span<const std::byte> message, const Wanted& wanted);
  void take_descriptors(Packet packet, std::span<const std::byte> message);
  void send_descriptors();
  void conclude();
  void try_later(int error);
  base::Verdict judge(const base::Acceptor& claimed, const Wanted& wanted) const;

  const Offer& own_;
  base::FileDescriptor socket_;
  int rank_ = -1;
  base::TimePoint begun_;
  State state_ = State::begun;
  base::HandshakeDriver handshake_;
  bool unsent_ = false;  // this rank's descriptors are due and could not be sent yet
  bool taken_ = false;   // the peer's descriptors have arrived
  int shortage_ = 0;
  base::TimePoint next_try_ = base::TimePoint::max();
  milliseconds pause_{1};
  std::string why_;
  std::optional<Errc> code_;
};

}  // namespace rondo::host
