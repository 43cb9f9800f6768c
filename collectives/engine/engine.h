// SPDX-License-Identifier: Apache-2.0
//
// Starts operations and routes what happens on links to the owner of each link. The parts:
//   owner.h           the interface of what runs operations: ScheduledLane, DirectOwner,
//                     TwoLevelOwner and point::Point
//   held_calls.h      the calls whose memory an earlier one uses
//   lane_calls.h      the calls of a lane: numbers, order, progress
//   verdict.h         suspicion, cause and reports
//   driver.h          which thread makes progress, and when it sleeps
// The engine itself ends every operation when the communicator has failed.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/own_descriptors.h"
#include "collectives/engine/call_times.h"
#include "collectives/engine/direct_owner.h"
#include "collectives/engine/driver.h"
#include "collectives/engine/failure.h"
#include "collectives/engine/held_calls.h"
#include "collectives/engine/lane_calls.h"
#include "collectives/engine/operation.h"
#include "collectives/engine/operation_pool.h"
#include "collectives/engine/owner.h"
#include "collectives/engine/scheduled_lane.h"
#include "collectives/engine/two_level_owner.h"
#include "collectives/engine/verdict.h"
#include "collectives/point/point.h"
#include "transports/transport.h"

namespace rondo {
struct Statistics;  // rondo/communicator.h
}

namespace rondo::engine {

struct EngineOptions {
  int rank = 0;
  int size = 1;
  int ranks_per_core = 1;  // of this host, rounded up
  WaitMode wait = WaitMode::automatic;
  bool checksum = false;           // of every payload
  bool reproducible = false;       // direct algorithms round as a chain of ranks does
  std::string transport = "self";  // for messages: "tcp"
  schedules::Hosts hosts = {};     // which ranks share one; the same on all ranks
  nanoseconds warn_after{};  // how long an operation waits before EngineObserver::slow(); 0: never
};

// Threads: one thread at a time starts operations of a lane, and one calls stop() at the end; the
// rest is thread-safe. One lock, the driver's, guards everything. It is held for one pass at a
// time, not while a thread sleeps, and not during callbacks and reports.
// Failures: the constructor throws Error(system). start() throws when there is no memory, and then
// the call has no number. wait() throws Error(unsupported) in a forked child. A failure of a
// transport or peer ends the operations, as Verdict says.
class Engine final : private transports::Sink, private OwnerHost, private Driven {
 public:
  // routes: by rank, the transport that reaches it (null for this rank). transports and observer
  // outlive the engine.
  Engine(const EngineOptions& options, std::vector<transports::Transport*> routes,
         std::vector<transports::Transport*> transports, EngineObserver* observer);
  ~Engine() override;  // ends what is pending with Errc::aborted
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Whether all ranks reach each other's memory, so that calls may use Algorithm::direct.
  bool has_direct() const noexcept { return has_direct_; }
  // Starts the call, and never waits: if an earlier call uses its memory, it begins when that one
  // has ended. The caller owns one reference to the result. One thread at a time in a lane.
  Operation* start(const schedules::Call& call);
  // The same for messages between two ranks.
  Operation* start(const point::PointCall& call);
  // Thread-safe. True when the operation has ended.
  bool wait(Operation& operation, base::TimePoint until);
  // Thread-safe. Nobody will wait for the operation soon.
  void leave(const Operation& operation);
  // The callback is made without the lock, by the thread that ends the operation. If the operation
  // has already ended, it is made here. Several are made in the order in which they were set.
  void set_callback(Operation& operation, std::function<void(std::error_code)> callback);
  // Ends every pending and later operation with this failure, unless there was one before.
  // Thread-safe.
  void fail(const Failure& failure);
  // This rank ends the communicator: reports the failure, so that the others learn it. If the
  // observer answers with another cause, that one holds. Thread-safe.
  void abort(const Failure& failure);
  // Ends what is pending and stops the background thread. No start or wait may be under way or
  // follow. Returns whether the communicator had no failure until now.
  bool stop();
  // `rank` has destroyed its communicator in order. finished: its last operation in each lane;
  // later collectives fail. Thread-safe.
  void peer_left(int rank, const std::uint64_t (&finished)[lane_count]);

  RankStatus status();
  Statistics statistics();

 private:
  struct Left {
    int rank;
    std::uint64_t finished[lane_count];
  };

  // Sink: under the lock, from within pass().
  std::optional<transports::Receive> expected(transports::Link& link, std::size_t ahead) override;
  bool awaits_header(transports::Link& link) override;
  transports::Header arrived(transports::Link& link,
                             const transports::HeaderBytes& header) override;
  std::size_t data(transports::Link& link, std::span<const std::byte> view) override;
  void received(transports::Link& link) override;
  void sent(transports::Link& link, std::uint64_t cookie) override;
  void broken(transports::Link& link, std::error_code code, std::string_view what,
              bool clean) override;

  // OwnerHost: under the lock.
  transports::Link& link(int peer, transports::Lane lane) override;
  void finished(Operation& operation) override;
  void suspect(Failure failure) override;

  // Driven: under the lock.
  bool pass() override;
  void check_time(base::TimePoint now) override;
  base::TimePoint next_check() const noexcept override;
  void deliver() override;
  bool pending() const noexcept override;
  bool shares_core() override;
  bool prepare_sleep(WakeDescriptors& descriptors) override;

  LinkOwner& owner(const transports::Link& link) const RONDO_REQUIRES(driver_.mutex()) {
    return *owners_[static_cast<std::size_t>(link.lane())];
  }
  LaneCalls& calls(transports::Lane lane) RONDO_REQUIRES(driver_.mutex()) {
    return calls_[static_cast<std::size_t>(lane)];
  }

  void share_memory(transports::Windows& windows) RONDO_REQUIRES(driver_.mutex());
  template <class Kind>
  Taken<Kind> take(const std::shared_ptr<OperationPool>& pool) RONDO_REQUIRES(driver_.mutex());
  const schedules::Program& program(const schedules::Call& call) RONDO_REQUIRES(driver_.mutex());
  TwoLevelOwner* two_level(const schedules::Call& call) RONDO_REQUIRES(driver_.mutex());
  CollectiveOperation& make_scheduled(const schedules::Call& call, bool held)
      RONDO_REQUIRES(driver_.mutex());
  CollectiveOperation& make_direct(const schedules::Call& call) RONDO_REQUIRES(driver_.mutex());
  OperationOwner& owner_of(const schedules::Call& call) RONDO_REQUIRES(driver_.mutex());
  bool is_direct(const Operation& operation) const RONDO_REQUIRES(driver_.mutex());
  void begin_run(ScheduledOperation& operation, const schedules::Call& call)
      RONDO_REQUIRES(driver_.mutex());
  bool enlist(Operation& operation, OperationOwner& owner) RONDO_REQUIRES(driver_.mutex());
  void begin(CollectiveOperation& operation) RONDO_REQUIRES(driver_.mutex());
  void begin_scheduled(ScheduledOperation& operation) RONDO_REQUIRES(driver_.mutex());
  void begin(point::MessageOperation& operation, std::span<const point::PointTransfer> transfers)
      RONDO_REQUIRES(driver_.mutex());
  bool begin_freed() RONDO_REQUIRES(driver_.mutex());
  void go(const Operation& operation, bool unattended) RONDO_REQUIRES(driver_.mutex());
  bool move() RONDO_REQUIRES(driver_.mutex());
  bool advance_memory() RONDO_REQUIRES(driver_.mutex());
  bool look_at_memory() RONDO_REQUIRES(driver_.mutex());
  std::uint64_t awaited() const noexcept RONDO_REQUIRES(driver_.mutex());
  void await(std::uint64_t ranks) RONDO_REQUIRES(driver_.mutex());
  bool advance_links() RONDO_REQUIRES(driver_.mutex());
  template <class Owner>
  bool advance(Owner& owner) RONDO_REQUIRES(driver_.mutex());
  void give_up(const std::exception& error) RONDO_REQUIRES(driver_.mutex());
  void keep_for_callback(Operation& operation) RONDO_REQUIRES(driver_.mutex());
  void let_go(Operation& operation) RONDO_REQUIRES(driver_.mutex());
  void end_all() RONDO_REQUIRES(driver_.mutex());
  const Left* who_left_before(const CollectiveOperation& operation) const
      RONDO_REQUIRES(driver_.mutex());
  void check_left(const CollectiveOperation& operation) RONDO_REQUIRES(driver_.mutex());

  const EngineOptions options_;
  const unsigned process_ = base::process_generation();
  const std::vector<transports::Transport*> routes_, transports_;
  bool has_direct_ = false;

  Driver driver_;
  Verdict verdict_ RONDO_GUARDED_BY(driver_.mutex());
  std::array<LaneCalls, transports::link_lane_count> calls_ RONDO_GUARDED_BY(driver_.mutex());
  CallTimes times_ RONDO_GUARDED_BY(driver_.mutex());
  ScheduledLane scheduled_[lane_count] RONDO_GUARDED_BY(driver_.mutex());
  std::optional<DirectOwner> direct_[lane_count] RONDO_GUARDED_BY(driver_.mutex());
  // Only where the other ranks of this rank's host have windows for it, and there are other hosts.
  std::optional<TwoLevelOwner> two_level_[lane_count] RONDO_GUARDED_BY(driver_.mutex());
  point::Point point_ RONDO_GUARDED_BY(driver_.mutex());
  HeldCalls held_ RONDO_GUARDED_BY(driver_.mutex());
  // By lane: who gets what happens on its links.
  const std::array<LinkOwner*, transports::link_lane_count> owners_;
  std::vector<OperationOwner*> all_owners_ RONDO_GUARDED_BY(driver_.mutex());

  std::vector<std::unique_ptr<schedules::Program>> programs_ RONDO_GUARDED_BY(driver_.mutex());
  const std::shared_ptr<OperationPool> scheduled_pool_, direct_pool_, message_pool_;
  Run::Room room_ RONDO_GUARDED_BY(driver_.mutex());
  std::uint64_t pending_ RONDO_GUARDED_BY(driver_.mutex()) = 0;
  std::uint64_t started_ RONDO_GUARDED_BY(driver_.mutex()) = 0;
  std::vector<Left> left_ RONDO_GUARDED_BY(driver_.mutex());

  // Ended operations whose callbacks are still to be made, in the order in which they ended.
  Operation* first_ended_ RONDO_GUARDED_BY(driver_.mutex()) = nullptr;
  Operation* last_ended_ RONDO_GUARDED_BY(driver_.mutex()) = nullptr;
};

}  // namespace rondo::engine
