// SPDX-License-Identifier: Apache-2.0
//
// The engine starts operations and waits for them; owners run them. There are three kinds:
// ScheduledLane and point::Point own the links of a lane, DirectOwner has the memory of other ranks
// instead of links.
//
// Threads: an owner is thread-bound to whoever holds the engine's lock, and takes no lock itself.
// Failures: an owner that notices one tells OwnerHost::suspect() and returns. It goes on only when
// the engine calls it again, after clear().
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/clock.h"
#include "collectives/engine/failure.h"
#include "transports/transport.h"

namespace rondo::engine {

class Operation;

// What an owner has moved, and the memory that it keeps for data on their way.
struct Traffic {
  std::uint64_t frames_sent = 0, frames_received = 0, bytes_sent = 0, bytes_received = 0;
  std::size_t staging_bytes = 0;
};

// The engine as its owners see it.
class OwnerHost {
 public:
  virtual ~OwnerHost() = default;
  // The link on which frames of a lane go to a peer. Ask once and keep it.
  virtual transports::Link& link(int peer, transports::Lane lane) = 0;
  // The operation has done all its work. The owner has forgotten it and must not use it again.
  virtual void finished(Operation& operation) = 0;
  // Where there is no observer, clear() is called before this returns.
  virtual void suspect(Failure failure) = 0;
};

class OperationOwner {
 public:
  virtual ~OperationOwner() = default;
  // Does a bounded piece of the work that can be done now. True when anything was done. Throws when
  // there is no memory; then the engine ends all operations.
  virtual bool advance() = 0;
  // Forgets all operations: the engine ends them, for the communicator has failed.
  virtual void clear() noexcept = 0;
  // Adds the ranks that an operation of this owner waits for.
  virtual void append_awaited(const Operation& operation, std::vector<int>& ranks) const = 0;
  // What to say of an operation whose time is over: "not done within 2 s: rank 0 waits for ..."
  virtual std::string late_text(const Operation& operation) const = 0;
  virtual Traffic traffic() const noexcept = 0;
};

// Owns the links of one lane, too. The calls are those of transports::Sink, which says what they
// mean; the engine hands on those of this owner's lane.
class LinkOwner : public OperationOwner {
 public:
  virtual std::optional<transports::Receive> expected(transports::Link& link,
                                                      std::size_t ahead) = 0;
  virtual bool awaits_header(transports::Link& link) = 0;
  virtual transports::Header arrived(transports::Link& link,
                                     const transports::HeaderBytes& header) = 0;
  virtual std::size_t data(transports::Link& link, std::span<const std::byte> view) = 0;
  virtual void received(transports::Link& link) = 0;
  virtual void sent(transports::Link& link) = 0;
  virtual void broken(transports::Link& link, std::error_code code, std::string_view what,
                      bool clean, base::TimePoint now) = 0;
  // A link that was closed in order counts as lost after a while: when to look.
  virtual base::TimePoint next_check() const noexcept = 0;
  virtual void check(base::TimePoint now) = 0;
};

}  // namespace rondo::engine
