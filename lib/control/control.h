// SPDX-License-Identifier: Apache-2.0
//
// The control plane: every rank keeps the connection to rank 0 over which it joined. These
// connections carry the first cause of a failure to all ranks and show which ranks die or leave.
// When a deadline passes, rank 0 asks over them where each rank stands. One thread of its own
// serves them and sleeps until something comes, so it works while the program computes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "collectives/operation/failure.h"
#include "collectives/plan/planner.h"
#include "lib/wire/stream.h"
#include "transports/transport.h"

namespace rondo::control {

// Lists what rank 0 has heard from other ranks, at most one text of 300 bytes from each:
// "all_reduce #41 (64 MiB f32 sum) under way, waits for rank 2; finished #40".
using Heard = std::vector<std::pair<int, std::string>>;

// The communicator's side. Called on the control thread; must not block for long.
class ControlClient {
 public:
  virtual ~ControlClient() = default;
  virtual operation::RankStatus status() = 0;
  // The first cause of the whole communicator, at most once. heard: empty on all ranks but 0.
  virtual void failed(const operation::Failure& failure, const Heard& heard) = 0;
  // A rank has destroyed its communicator in order, after it finished these operations (by lane).
  // That does no harm unless an operation with a greater number needs the rank.
  virtual void peer_left(int rank, const std::uint64_t (&finished)[lane_count]) = 0;
};

// The report functions and publish() are thread-safe and never block. The thread that makes or
// destroys the communicator calls the others, which block for a bounded time. Locks: only those of
// the queue of commands and of the slots in thread.h. A failure of the control plane itself is a
// failure of the communicator.
class Control {
 public:
  virtual ~Control() = default;  // stops the thread, closes the connections; bounded
  // From now on the client gets the events; first all those that came before. A later call puts
  // another client in its place. Both outlive the object.
  virtual void start(ControlClient& client) = 0;
  // This rank saw a failure itself. Rank 0 takes the first report as the cause and sends it to all
  // ranks; each of them, with this one, gets ControlClient::failed.
  //
  // If rank 0 does not answer within two seconds, this rank's own control plane gives the verdict.
  // It is the same text on all ranks, except on a rank that saw the cause itself. If the rank
  // Failure::lost has left in order, that is the cause, whatever the report says.
  virtual void report(const operation::Failure& failure) = 0;
  // A deadline passed on this rank in that lane. Rank 0 asks every rank where it stands, for at
  // most a second, and names the late ranks: see late_ranks.h. `what` is this rank's own view,
  // which is used if rank 0 finds nothing better. operation 0: messages between two ranks, which
  // have no common number.
  virtual void report_deadline(Priority lane, std::uint64_t operation, nanoseconds deadline,
                               const std::string& what) = 0;
  // Nothing has come for this operation for a while. Rank 0 asks as above. If ranks have called
  // different operations under this number, that is the failure; else nothing happens.
  virtual void report_stall(Priority lane, std::uint64_t operation) = 0;
  // An operation has waited for long. Rank 0 asks as above and writes the answer to standard error,
  // once for each operation.
  virtual void report_slow(Priority lane, std::uint64_t operation, nanoseconds waited) = 0;
  // On rank 0: tells all ranks what links cost.
  virtual void publish(const PlanConstants& constants) = 0;
  // On the others: waits for publish(). No value if time is up or the communicator has failed; the
  // client is told of the failure.
  virtual std::optional<PlanConstants> await_constants(base::TimePoint until) = 0;
  // This rank's connect() has done its part. Blocks until that of every rank has, and returns no
  // value; else returns the communicator's first failure. It is a failure if a rank is not that far
  // by `until`.
  virtual std::optional<operation::Failure> await_ready(base::TimePoint until) = 0;
  // Waits for the communicator's first failure. No value if there is none by `until`.
  virtual std::optional<operation::Failure> await_failure(base::TimePoint until) = 0;
  // Tells the others that this rank leaves in order, after it finished these operations. Rank 0,
  // the hub, stays until the others have finished as many. Blocks until `until` at most.
  virtual void leave(const std::uint64_t (&finished)[lane_count], base::TimePoint until) = 0;
};

// Both throw Error(system) if the thread cannot be started, after telling the other ranks.
//
// Makes rank 0's end, the hub. streams: those of ranks 1, 2, ...; shared: the bytes that these may
// still have to send.
std::unique_ptr<Control> make_hub(std::vector<wire::Stream> streams, transports::Blob shared);
// Makes the end of another rank. stream: that to rank 0.
std::unique_ptr<Control> make_spoke(wire::Stream stream, int rank);

}  // namespace rondo::control
