// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <rondo/error.h>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "base/handshake.h"
#include "transports/host/packet.h"
#include "transports/host/shared_memory.h"

namespace rondo::host {

// A rank with which segments have been exchanged.
struct Peer {
  int rank = 0;
  base::FileDescriptor socket, bell;
  Mapping segment;  // the peer's, to be read
  PeerProcess process;
};

// What this rank brings to every exchange.
struct Offer {
  int rank = 0;
  int size = 1;
  std::string_view secret;
  std::uint64_t job = 0;
  int segment = -1, bell = -1;    // descriptors
  std::size_t segment_bytes = 0;  // of every rank's segment
};

// One connection, from its beginning until both ends have the other's segment: the handshake, then
// one message with the descriptors in each direction. While descriptors are short, here or in
// flight, it tries again: see next_try().
class Exchange {
 public:
  enum class State {
    begun,   // nothing is proved
    proved,  // it is a rank of this job
    met,     // done: take()
    ended,   // of no use; why() and code() say more
  };

  // The side that connects; `peer` is whom it means to reach.
  Exchange(const Offer& own, base::FileDescriptor socket, int peer, base::TimePoint now);
  // The side that has accepted.
  Exchange(const Offer& own, base::FileDescriptor socket, base::TimePoint now);

  int socket() const noexcept { return socket_.get(); }
  State state() const noexcept { return state_; }
  // Of the peer: -1 while the accepting side does not know it.
  int rank() const noexcept { return rank_; }
  base::TimePoint begun() const noexcept { return begun_; }
  // Takes what has come and answers. wanted(rank): whether an exchange with that rank is still to
  // come.
  template <class Wanted>
  void go_on(Wanted wanted) {
    next_try_ = base::TimePoint::max();
    if (unsent_) send_segment();
    while (state_ != State::met && state_ != State::ended &&
           step([&](int rank) { return wanted(rank); })) {
    }
  }
  // Call go_on() then although nothing has come: descriptors were short.
  base::TimePoint next_try() const noexcept { return next_try_; }
  // An errno value, the shortage for which this has not ended yet; 0: nothing is short.
  int shortage() const noexcept { return shortage_; }
  Peer take();
  // Why it has ended. Without a code it may be tried again: nobody has judged.
  const std::string& why() const noexcept { return why_; }
  std::optional<Errc> code() const noexcept { return code_; }
  // Tells the peer why this rank gives up, so that all ranks end with the same words.
  void give_up(std::string_view why) const noexcept;

 private:
  enum class Step { hello, challenge, proof, verdict, segment };
  struct Wanted {
    void* context;
    bool (*call)(void*, int);
  };

  template <class Function>
  bool step(Function wanted) {
    return step(Wanted{
        &wanted, [](void* context, int rank) { return (*static_cast<Function*>(context))(rank); }});
  }
  bool step(Wanted wanted);
  bool same_user() const noexcept;
  void end(std::string why, std::optional<Errc> code = {});
  void say(std::span<const std::byte> message);
  void take_hello(std::span<const std::byte> message);
  void take_challenge(std::span<const std::byte> message);
  void take_proof(std::span<const std::byte> message, Wanted wanted);
  void take_verdict(std::span<const std::byte> message);
  void take_segment(Packet packet, std::span<const std::byte> message);
  void send_segment();
  void conclude();
  void try_later(int error);
  base::Verdict judge(Wanted wanted) const;

  const Offer& own_;
  base::FileDescriptor socket_;
  int rank_ = -1;
  base::TimePoint begun_;
  State state_ = State::begun;
  Step step_;
  std::optional<base::Initiator> initiator_;
  std::optional<base::Acceptor> acceptor_;
  Peer met_;
  bool unsent_ = false;  // this rank's segment, though it is due
  bool taken_ = false;   // the peer's is here
  int shortage_ = 0;
  base::TimePoint next_try_ = base::TimePoint::max();
  milliseconds pause_{1};
  std::string why_;
  std::optional<Errc> code_;
};

}  // namespace rondo::host
