// SPDX-License-Identifier: Apache-2.0
//
// Joins the parts that run a communicator's operations, and holds the lock of all:
//   starter.h         starts calls: numbers, calls that wait for memory, who runs a call
//   owners.h          those that run operations (owner.h), and whose turn it is
//   lane_calls.h      the calls of a lane: numbers, order, progress
//   call_times.h      deadlines and long waits
//   departures.h      ranks that have left
//   verdict.h         suspicion, cause and reports
//   driver.h          which thread makes progress, and when it sleeps
// The engine itself ends operations: it makes their callbacks, and fails all that are pending when
// the communicator has failed.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <vector>

#include "base/fifo.h"
#include "base/own_descriptors.h"
#include "collectives/engine/call_times.h"
#include "collectives/engine/departures.h"
#include "collectives/engine/driver.h"
#include "collectives/engine/options.h"
#include "collectives/engine/owners.h"
#include "collectives/engine/snapshot.h"
#include "collectives/engine/starter.h"
#include "collectives/engine/verdict.h"
#include "collectives/operation/failure.h"
#include "collectives/operation/lane_calls.h"
#include "collectives/operation/operation.h"
#include "collectives/operation/owner.h"
#include "collectives/operation/recorder.h"
#include "collectives/operation/waker.h"
#include "transports/transport.h"

namespace rondo {
struct Statistics;  // rondo/communicator.h
}

namespace rondo::engine {

// Threads: one thread at a time starts operations of a lane, and one calls stop() at the end; the
// rest is thread-safe. One lock, the driver's, guards everything. It is held for one pass at a
// time, not while a thread sleeps, and not during callbacks and reports.
// Failures: the constructor throws Error(system). start() throws when there is no memory, and then
// the call has no number. wait() throws Error(unsupported) in a forked child. A failure of a
// transport or peer ends the operations, as Verdict says.
class Engine final : private operation::OwnerHost, private Driven {
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
  // Which stages of TwoLevelOwner such a call has.
  lanes::StagesInside stages_inside(const schedules::Signature& signature) const noexcept;
  // Starts the call, and never waits: if an earlier call uses its memory, it begins when that one
  // has ended. The caller owns one reference to the result. One thread at a time in a lane. device:
  // where the buffers are; null: in host memory. Throws Error(system) as well, where the device
  // refuses the stream.
  operation::Operation* start(const schedules::Call& call,
                              const operation::DeviceCall* device = nullptr) {
    return start_call(call, device);
  }
  // Does the same for messages between two ranks. Null: a send that has ended.
  operation::Operation* start(const point::PointCall& call,
                              const operation::DeviceCall* device = nullptr) {
    return start_call(call, device);
  }
  // For device memories, which must outlive the engine.
  const std::shared_ptr<operation::Waker>& waker() const noexcept { return waker_; }
  // Thread-safe. True when the operation has ended.
  bool wait(operation::Operation& operation, base::TimePoint until);
  // Thread-safe. Waits until the operation has ended, or everything that comes before its end is
  // enqueued on the device; then makes the stream wait for that. A direct operation always ends
  // first. False when neither happens before `until`. Throws Error(system) where the device refuses
  // the stream.
  bool join(operation::Operation& operation, device::StreamHandle stream, base::TimePoint until);
  // Waits until `until` at most for the operations that a device finishes by itself. A stream that
  // joined them may already be past their end. No start or wait may be under way or follow.
  void await_enqueued(base::TimePoint until);
  // Thread-safe. Nobody will wait for the operation soon.
  void leave(const operation::Operation& operation);
  // The callback is made without the lock, by the thread that ends the operation. If the operation
  // has already ended, it is made here. Those that were set before the end are made in the order in
  // which they were set.
  void set_callback(operation::Operation& operation, std::function<void(std::error_code)> callback);
  // Ends every pending and later operation with this failure, unless there was one before.
  // Thread-safe.
  void fail(const operation::Failure& failure);
  // This rank ends the communicator: reports the failure, so that the others learn it. If the
  // observer answers with another cause, that one holds. Thread-safe.
  void abort(const operation::Failure& failure);
  // How a rank leaves.
  enum class Departure { after_failure, in_a_collective, in_order };
  // Ends what is pending and stops the background thread. No start or wait may be under way or
  // follow. In order, it waits until transports have sent what they must, but not beyond `until`.
  Departure stop(base::TimePoint until);
  // `rank` has destroyed its communicator in order. finished: its last operation in each lane;
  // later collectives fail. Thread-safe.
  void peer_left(int rank, const std::uint64_t (&finished)[lane_count]);

  operation::RankStatus status();
  Snapshot snapshot();
  Statistics statistics();
  // By tag, if EngineOptions::counts_tags; else nothing.
  std::optional<operation::TagCounts> tag_counts();

 private:
  // OwnerHost: under the lock.
  transports::Link& link(int peer, transports::Lane lane) override;
  void finished(operation::Operation& operation) override;
  void enqueued() override;
  void suspect(operation::Failure failure) override;

  // Driven: under the lock.
  bool pass() override;
  bool look_for(const operation::Operation& operation) override;
  void check_time(base::TimePoint now) override;
  base::TimePoint next_check() const noexcept override;
  void pausing() noexcept override;
  void deliver() override;
  bool pending() const noexcept override;
  bool in_collective() const noexcept;
  Waiting::Company company() override;
  std::uint64_t lacking() const RONDO_REQUIRES(driver_.mutex());
  bool prepare_sleep(operation::WakeDescriptors& descriptors) override;

  operation::LaneCalls& calls(transports::Lane lane) RONDO_REQUIRES(driver_.mutex()) {
    return calls_[static_cast<std::size_t>(lane)];
  }

  operation::TagCounts* tags() noexcept RONDO_REQUIRES(driver_.mutex()) {
    return tags_ ? &*tags_ : nullptr;
  }
  void tell_late(const operation::LateReport& late) RONDO_REQUIRES(driver_.mutex());
  template <class Call>
  operation::Operation* start_call(const Call& call, const operation::DeviceCall* device);
  void prepare(const operation::DeviceCall& device) RONDO_REQUIRES(driver_.mutex());
  operation::Operation* started(operation::Operation& operation, bool unattended)
      RONDO_REQUIRES(driver_.mutex());
  operation::Operation* sent_at_once(const point::PointCall& call) RONDO_REQUIRES(driver_.mutex());
  operation::Operation& await_sent(const point::PointCall& call) RONDO_REQUIRES(driver_.mutex());
  bool pass_is_due() RONDO_REQUIRES(driver_.mutex());
  bool a_look_is_enough(const operation::Operation& operation) RONDO_REQUIRES(driver_.mutex());
  template <auto work, class... Arguments>
  bool attempt(Arguments&... arguments) RONDO_REQUIRES(driver_.mutex());
  bool look_at(const operation::Operation& operation) RONDO_REQUIRES(driver_.mutex());
  bool move() RONDO_REQUIRES(driver_.mutex());
  bool prepare_devices() RONDO_REQUIRES(driver_.mutex());
  bool look_at_memory() RONDO_REQUIRES(driver_.mutex());
  void await(std::uint64_t ranks) RONDO_REQUIRES(driver_.mutex());
  void keep_for_callback(operation::Operation& operation) RONDO_REQUIRES(driver_.mutex());
  void release(operation::Operation& operation) RONDO_REQUIRES(driver_.mutex());
  enum class Cause { failure, departure };
  void end_all(Cause cause = Cause::failure) RONDO_REQUIRES(driver_.mutex());
  operation::RankStatus status_at(base::TimePoint now) const RONDO_REQUIRES(driver_.mutex());
  Snapshot look() RONDO_REQUIRES(driver_.mutex());
  void fail_calls(const operation::Failure& failure) RONDO_REQUIRES(driver_.mutex());
  void check_left(const operation::LaneCalls& calls) RONDO_REQUIRES(driver_.mutex());

  const EngineOptions options_;
  const unsigned process_ = base::process_generation();
  const std::vector<transports::Transport*> routes_, transports_;

  Driver driver_;
  const std::shared_ptr<operation::Waker> waker_;
  Verdict verdict_ RONDO_GUARDED_BY(driver_.mutex());
  std::optional<operation::TagCounts> tags_ RONDO_GUARDED_BY(driver_.mutex());
  std::array<operation::LaneCalls, transports::link_lane_count> calls_
      RONDO_GUARDED_BY(driver_.mutex());
  CallTimes times_ RONDO_GUARDED_BY(driver_.mutex());
  Departures departures_ RONDO_GUARDED_BY(driver_.mutex());
  Owners owners_ RONDO_GUARDED_BY(driver_.mutex());
  Starter starter_ RONDO_GUARDED_BY(driver_.mutex());
  const bool has_direct_;
  const lanes::TwoLevelOwner* const
      two_level_;  // only for what it has from its constructor; or null

  operation::Recorder recorder_ RONDO_GUARDED_BY(driver_.mutex());
  base::TimePoint failed_ RONDO_GUARDED_BY(driver_.mutex()){};
  std::string noted_ RONDO_GUARDED_BY(driver_.mutex());  // what on_failure has returned
  std::uint64_t failures_ RONDO_GUARDED_BY(driver_.mutex()) = 0;
  unsigned starts_ RONDO_GUARDED_BY(driver_.mutex()) = 0;  // see pass_is_due()

  // Ended operations whose callbacks are still to be made, in the order in which they ended.
  base::Fifo<operation::Operation> ended_ RONDO_GUARDED_BY(driver_.mutex());
};

}  // namespace rondo::engine
