// SPDX-License-Identifier: Apache-2.0
//
// Starts calls: makes the operation, gives it its number, and hands it to the owner that runs it.
//   - What can throw comes before the number. A call with a number is in LaneCalls until it ends.
//   - A call in LaneCalls belongs to HeldCalls while an earlier one uses its memory, a message also
//     until its mark is reached, and then to the owner that runs it. It changes hands once, and
//     collectives do so in the order of their numbers.
//
// Threads: thread-bound to whoever holds the engine's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/engine/departures.h"
#include "collectives/engine/held_calls.h"
#include "collectives/engine/options.h"
#include "collectives/engine/owners.h"
#include "collectives/engine/verdict.h"
#include "collectives/operation/lane_calls.h"
#include "collectives/operation/operation_source.h"
#include "collectives/operation/owner.h"

namespace rondo::engine {

class Starter {
 public:
  struct Parts {
    std::span<operation::LaneCalls, transports::link_lane_count> calls;
    Owners& owners;
    const Verdict& verdict;
    const Departures& departures;
    operation::OwnerHost& host;
  };

  // All outlive the object. engine: only to make operations.
  Starter(const EngineOptions& options, Engine& engine, const Parts& parts);
  Starter(const Starter&) = delete;
  Starter& operator=(const Starter&) = delete;

  // The operation has two references: the engine's, until it has ended, and the caller's. It may
  // have ended already. After a failure of the communicator no owner runs it: it is only in
  // LaneCalls, and the caller ends it. Throws when there is no memory, and then the call has no
  // number.
  // device: where the call's buffers are; null: in host memory. Its memory wants no spares now.
  operation::Operation& start(const schedules::Call& call, const operation::DeviceCall* device);
  // Does the same for messages between two ranks.
  operation::Operation& start(const point::PointCall& call, const operation::DeviceCall* device);
  // Comes before start() for a call in host memory. If it is one send, nothing is in its way and
  // its link takes it, the message leaves. full: it has not. done: the call has ended and has its
  // number. copied: start_sent() follows at once, instead of start().
  transports::Send send_at_once(const point::PointCall& call);
  // The operation ends when the link has sent the message. If this throws, the communicator must
  // fail.
  operation::Operation& start_sent(const point::PointCall& call);
  // How many calls have been started.
  std::uint64_t started() const noexcept { return started_; }

  // A call has ended, so its memory is free; or marks have been reached.
  void memory_freed() noexcept { held_.memory_freed(); }
  // Begins the held calls whose memory is free now. True when there was one. Throws when there is
  // no memory: then the communicator must fail.
  bool begin_freed() { return held_.any_freed() && begin_all_freed(); }
  // Forgets the held calls. The communicator has failed.
  void clear() noexcept { held_.clear(); }

 private:
  operation::LaneCalls& calls(const operation::Operation& operation) noexcept {
    return calls_[static_cast<std::size_t>(operation.lane)];
  }
  const schedules::Program& program(const schedules::Call& call, schedules::Inside inside);
  operation::CollectiveOperation& make_direct(const schedules::Call& call,
                                              const operation::DeviceCall* device);
  operation::CollectiveOperation& make_scheduled(const schedules::Call& call,
                                                 const operation::DeviceCall* device, bool held);
  void place(operation::Operation& operation, const operation::DeviceCall* device);
  void begin_run(operation::ScheduledOperation& operation, const schedules::Call& call);
  void enlist(operation::Operation& operation, operation::OperationOwner& owner) noexcept;
  void begin(operation::CollectiveOperation& operation);
  void begin_direct(operation::DirectOperation& operation);
  void begin_scheduled(operation::ScheduledOperation& operation);
  point::MessageOperation& enlist(const point::PointCall& call,
                                  operation::Taken<point::MessageOperation> taken) noexcept;
  void begin(point::MessageOperation& operation, std::span<const point::PointTransfer> transfers);
  void begin_held(operation::CollectiveOperation& operation);
  void begin_held(point::MessageOperation& operation);
  bool begin_all_freed();
  void check_left(const operation::CollectiveOperation& operation);

  const EngineOptions& options_;
  const std::span<operation::LaneCalls, transports::link_lane_count> calls_;
  Owners& owners_;
  const Verdict& verdict_;
  const Departures& departures_;
  operation::OwnerHost& host_;

  HeldCalls held_;
  std::uint64_t started_ = 0;
  operation::OperationSource<operation::ScheduledOperation> scheduled_;
  operation::OperationSource<operation::DirectOperation> direct_;
  operation::OperationSource<point::MessageOperation> messages_;
  std::vector<std::unique_ptr<schedules::Program>> programs_;
  operation::Run::Room room_;
};

}  // namespace rondo::engine
