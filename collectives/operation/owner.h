// SPDX-License-Identifier: Apache-2.0
//
// The engine starts operations and waits for them; owners run them. There are three kinds:
// ScheduledLane and point::Point own the links of a lane; DirectOwner uses the memory of other
// ranks instead of links.
//
// Threads: an owner is thread-bound to whoever holds the engine's lock, and takes no lock itself.
// Failures: an owner that notices one calls OwnerHost::suspect() and returns. The engine then asks
// it for no more work. Until the pass under way ends, calls of the sink may still come: before
// clear() any, which do no harm, because the first suspicion counts; after it data(), sent() and
// broken().
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/clock.h"
#include "collectives/operation/failure.h"
#include "collectives/operation/watch.h"
#include "transports/transport.h"

namespace rondo::operation {

class Operation;
struct PeerView;

// Counts the frames and bytes that an owner has moved, and the memory that it keeps for staging and
// for early messages.
struct Traffic {
  std::uint64_t frames_sent = 0, frames_received = 0, bytes_sent = 0, bytes_received = 0;
  std::size_t staging_bytes = 0;
};

// An operation waits for these ranks, or for the device of this one.
struct Awaited {
  std::vector<int> ranks;
  // Work of this rank's own device: see DeviceMemory::awaited(); else empty.
  std::string device = {};
};

// The engine as its owners see it.
class OwnerHost {
 public:
  virtual ~OwnerHost() = default;
  // The link to a peer in a lane. It stays the same, so the owner may keep it.
  virtual transports::Link& link(int peer, transports::Lane lane) = 0;
  // The operation has done all its work. The owner must have forgotten it before, and must not use
  // it afterwards: it may already belong to another call.
  virtual void finished(Operation& operation) = 0;
  // Everything of an operation in device memory has been enqueued there.
  virtual void enqueued() = 0;
  // Reports a failure that this rank saw. Without an observer the engine calls clear() before this
  // returns.
  virtual void suspect(Failure failure) = 0;
};

class OperationOwner {
 public:
  virtual ~OperationOwner() = default;
  // Does a bounded part of the work that can be done now. True when anything was done. Throws when
  // memory or the system refuses; the engine takes that as a failure of this rank.
  virtual bool advance() = 0;
  // Does only what this operation waits for most likely, where that is much cheaper: advance() and
  // the links come now and then. True when anything was done.
  virtual bool look_for(const Operation&) { return false; }
  // Forgets all operations. The communicator has failed, and the engine ends them.
  virtual void clear() noexcept = 0;
  // Returns what an operation of this owner waits for. wants_only: Standing::only is asked for.
  virtual Standing standing(const Operation& operation, bool wants_only) = 0;
  // Adds what an operation of this owner waits for.
  virtual void append_awaited(const Operation& operation, Awaited& awaited) const = 0;
  // Returns what to say of an operation whose time is over: "not done within 2 s: ..." Empty: what
  // append_awaited() adds says it all.
  virtual std::string late_text(const Operation&) const { return {}; }
  virtual Traffic traffic() const noexcept = 0;
  // Adds what this owner knows of each peer that it has to do with.
  virtual void append_views(std::vector<PeerView>&) const {}
};

// An owner that is also the sink of the links of one lane.
class LinkOwner : public OperationOwner, public transports::Sink {
 public:
  void broken(transports::Link& link, std::error_code code, std::string_view what,
              bool clean) final {
    lost(link, code, what, clean, base::Clock::now());
  }
  // Takes the report of broken(), at this time.
  virtual void lost(transports::Link& link, std::error_code code, std::string_view what, bool clean,
                    base::TimePoint now) = 0;
  // When to call check(): a link that was closed in order counts as lost only after a while.
  virtual base::TimePoint next_check() const noexcept = 0;
  virtual void check(base::TimePoint now) = 0;
};

}  // namespace rondo::operation
