// SPDX-License-Identifier: Apache-2.0
//
// The control plane: every rank keeps the connection to rank 0 over which it joined. It carries the
// first cause of a failure to everybody, answers "where does each rank stand" when a deadline
// passes, and notices ranks that die or leave. It is served by one thread of its own that sleeps
// until something comes, so it works while the program computes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "collectives/engine/failure.h"
#include "collectives/plan/planner.h"
#include "transports/transport.h"

namespace rondo::control {

// The communicator's side; called on the control thread, must not block for long.
class ControlClient {
 public:
  virtual ~ControlClient() = default;
  virtual engine::RankStatus status() = 0;
  // The first cause of the whole communicator, at most once.
  virtual void failed(const engine::Failure& failure) = 0;
  // A rank has destroyed its communicator in order after finishing these operations (by lane): no
  // harm unless an operation with a greater number needs it.
  virtual void peer_left(int rank, const std::uint64_t (&finished)[lane_count]) = 0;
};

class Control {
 public:
  virtual ~Control() = default;  // stops the thread, closes the connections; bounded
  // From now on events go to the client (those that came before are delivered first).
  virtual void start(ControlClient& client) = 0;
  // This rank saw a failure first-hand. Rank 0 takes the first report as the cause and sends it to
  // all; it arrives as ControlClient::failed on every rank, this one included. When rank 0 does not
  // answer within two seconds, this rank's own control gives the verdict: in the same words on all
  // ranks, unless it knows the cause first-hand. When the rank Failure::lost has left in order, its
  // leaving is the cause, whatever the report says. Thread-safe, never blocks.
  virtual void report(const engine::Failure& failure) = 0;
  // A deadline passed on this rank in that lane. Rank 0 asks every rank where it stands (a second
  // at most) and names the culprits: ranks that did not answer (stopped or unreachable), else ranks
  // that have not called the operation, with the last one they finished, else whom the others wait
  // for. `what` is this rank's own view, used when nothing better is found out; operation 0:
  // messages between two ranks, which have no number in common. Thread-safe, never blocks.
  virtual void report_deadline(Priority lane, std::uint64_t operation, nanoseconds deadline,
                               const std::string& what) = 0;
  // Nothing has come for this operation for a while. Rank 0 asks as above, and acts only when ranks
  // have called different things under this number: then that is the failure. Thread-safe, never
  // blocks.
  virtual void report_stall(Priority lane, std::uint64_t operation) = 0;
  // An operation has waited for so long. Rank 0 asks as above and writes the answer to standard
  // error, once for each operation. Thread-safe, never blocks.
  virtual void report_slow(Priority lane, std::uint64_t operation, nanoseconds waited) = 0;
  // Rank 0 tells all what links cost. Thread-safe, never blocks.
  virtual void publish(const plan::CostConstants& constants) = 0;
  // The others wait for it. Nothing when the time is up, or when the communicator has failed: the
  // client hears of that.
  virtual std::optional<plan::CostConstants> await_constants(base::TimePoint until) = 0;
  // This rank's connect() has done its part. Blocks until that of every rank has, and returns
  // nothing; else returns the communicator's first failure. It is a failure when ranks are not that
  // far by `until`.
  virtual std::optional<engine::Failure> await_ready(base::TimePoint until) = 0;
  // Waits for the communicator's first failure, until `until` at most; nothing when there is none.
  virtual std::optional<engine::Failure> await_failure(base::TimePoint until) = 0;
  // Tells the others that this rank leaves in order, having finished these operations, and lets
  // rank 0, the hub, stay until the others have finished as many or `until` has passed. Blocks
  // until then at most.
  virtual void leave(const std::uint64_t (&finished)[lane_count], base::TimePoint until) = 0;
};

}  // namespace rondo::control
