// SPDX-License-Identifier: Apache-2.0
//
// Runs operations over links. Whoever waits drives: Engine::wait makes progress on the calling
// thread, and a background thread drives only while operations are pending and nobody waits. One
// lock guards everything; it is held for one pass at a time and never while sleeping.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"
#include "base/own_descriptors.h"
#include "collectives/direct/direct.h"
#include "collectives/engine/failure.h"
#include "collectives/engine/lane.h"
#include "collectives/engine/operation.h"
#include "collectives/engine/operation_pool.h"
#include "collectives/point/point.h"
#include "transports/transport.h"

namespace rondo::engine {

// Hears of failures that this rank saw first-hand, and answers through Engine::fail with the cause
// that holds for all ranks. Called without the engine's lock, on the thread that drives; must not
// block.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  virtual void failure(const Failure& failure) = 0;
  // Nothing has arrived for a while although the operation waits: perhaps ranks have called
  // different things.
  virtual void stalled(Priority lane, std::uint64_t number) = 0;
  // It has waited for EngineOptions::warn_after; said once for each operation. Number 0: messages
  // between two ranks.
  virtual void slow(Priority lane, std::uint64_t number, nanoseconds waited) = 0;
  virtual void deadline(Priority lane, std::uint64_t number, nanoseconds limit,
                        const std::string& view) = 0;
};

struct EngineOptions {
  int rank = 0;
  int size = 1;
  bool crowded = false;            // ranks outnumber the cores of this host: yield, do not spin
  bool checksum = false;           // of every payload
  bool reproducible = false;       // direct algorithms round as a chain of ranks does
  std::string transport = "self";  // for messages: "tcp"
  schedules::Hosts hosts = {};     // which ranks share one; the same on all ranks
  nanoseconds warn_after{};  // how long an operation waits before somebody is told; 0: nobody is
};

struct EngineStatistics {
  std::uint64_t operations = 0, frames_sent = 0, frames_received = 0, bytes_sent = 0,
                bytes_received = 0;
  std::size_t staging_bytes = 0;
};

class Engine final : private transports::Sink, private point::PointHost {
 public:
  // routes: by rank, the transport that reaches it (null for this rank). transports and observer
  // outlive the engine.
  Engine(const EngineOptions& options, std::vector<transports::Transport*> routes,
         std::vector<transports::Transport*> transports, EngineObserver* observer);
  ~Engine() override;  // ends what is pending with Errc::aborted
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Whether all ranks reach each other's memory, so that calls may use Algorithm::direct.
  bool has_direct() const noexcept { return !direct_.empty(); }
  // Begins the call; the returned reference belongs to the caller. One thread at a time.
  Operation* start(const schedules::Call& call);
  // Likewise for messages between two ranks.
  Operation* start(const point::PointCall& call);
  // Thread-safe. True when the operation has ended.
  bool wait(Operation& operation, base::TimePoint until);
  void set_callback(Operation& operation, std::function<void(std::error_code)> callback);
  // Every pending and later operation ends with this failure, unless there was one before.
  // Thread-safe.
  void fail(const Failure& failure);
  // This rank wants an end: as fail(), but the others are told, and an earlier cause of theirs
  // wins. Thread-safe.
  void abort(const Failure& failure);
  // Ends what is pending and stops the background thread. No start or wait may be under way or
  // follow.
  void stop();
  // The rank left in order after these operations: later ones cannot succeed. Thread-safe.
  void peer_left(int rank, const std::uint64_t (&finished)[lane_count]);

  RankStatus status();
  EngineStatistics statistics();

 private:
  // How long after a start the background thread looks whether anybody drives. Setting a timer
  // costs 10 us and more in a virtual machine, so it is set once for all operations of that time,
  // and not taken back.
  static constexpr microseconds background_delay{1000};
  // Without a frame for this long the ranks compare their calls.
  static constexpr milliseconds stall_time{500};
  // So long a rank that has reported a failure waits for the cause that holds for all.
  static constexpr milliseconds verdict_time{3000};

  // Counts threads that want the lock, so that a driver that spins lets them in.
  class Guard;
  struct Left {
    int rank;
    std::uint64_t finished[lane_count];
  };

  std::optional<transports::Receive> expected(transports::Link& link, std::size_t ahead) override;
  transports::Header arrived(transports::Link& link,
                             const transports::HeaderBytes& header) override;
  std::size_t data(transports::Link& link, std::span<const std::byte> view) override;
  void received(transports::Link& link) override;
  void sent(transports::Link& link, std::uint64_t cookie) override;
  void broken(transports::Link& link, std::error_code code, std::string_view what,
              bool clean) override;
  bool awaits_header(transports::Link& link) override;

  transports::Link& point_link(int peer) override;
  void point_finished(Operation& operation) override;
  void point_failed(Failure failure) override;

  Lane& lane(transports::Lane lane) noexcept { return lanes_[static_cast<std::size_t>(lane)]; }
  direct::DirectLane& direct(transports::Lane lane) noexcept {
    return direct_[static_cast<std::size_t>(lane)];
  }
  Channel& channel(transports::Link& link) noexcept;
  const schedules::Program& program(const schedules::Call& call);
  Operation* take_operation();
  void wait_for_buffers(std::unique_lock<std::mutex>& lock, const schedules::Call& call);
  void finish(Operation& operation);
  void end(Operation& operation, Operation::State state, std::error_code code, std::string message);

  bool try_pass();
  bool pass();
  bool pass_direct();
  bool pass_direct(direct::DirectLane& direct);
  void refuse_post(const direct::DirectLane& direct);
  bool give_up(const std::exception& error);
  bool send_ready(Lane& lane);
  bool send_ready(Channel& channel);
  Frame frame_of(const Operation& operation, const FramePlace& place, std::size_t bytes) const;

  bool drive(std::unique_lock<std::mutex>& lock, const Operation* operation, base::TimePoint until);
  bool sleep(std::unique_lock<std::mutex>& lock, base::TimePoint until, bool on_behalf_of_nobody);
  void let_in(std::unique_lock<std::mutex>& lock);
  void give_way(std::unique_lock<std::mutex>& lock, base::TimePoint now);
  void arm_background(nanoseconds delay);
  void set_timer(nanoseconds delay) noexcept;
  void background();
  void wake() noexcept;
  void tell_waiters();
  void wait_for_news(std::unique_lock<std::mutex>& lock, base::TimePoint until);
  void move_on();
  void deliver(std::unique_lock<std::mutex>& lock);

  bool check_frame(Channel& channel, Frame& frame);
  void check_held(Channel& channel);
  void check_peers(Operation& operation);
  const Left* who_left_before(const Operation& operation) const noexcept;
  void notice_lost(Channel& channel);
  void mismatch(int peer, transports::Lane lane, const Operation* mine, const Frame& theirs);
  void append_awaited(const Operation& operation, std::vector<int>& ranks) const;
  void suspect(Failure failure);
  void adopt(const Failure& failure);
  void expire(const Operation& operation);
  void expire_point(const Operation& operation);
  base::TimePoint next_time() const noexcept;
  void check_time(base::TimePoint now);
  void check_farewells(base::TimePoint now);
  void check_stall(base::TimePoint now);
  void check_slow(base::TimePoint now);
  std::string text(const Operation& operation) const;
  std::string view_of(const Operation& operation) const;
  std::string lost_text(const Channel& channel, std::string_view what) const;

  const EngineOptions options_;
  const unsigned process_ = base::process_generation();
  const std::vector<transports::Transport*> routes_, transports_;
  EngineObserver* const observer_;

  std::mutex mutex_;
  std::atomic<int> wanting_{0};
  // Waiters that do not drive sleep here, not on the engine's lock: a driver would never let them
  // back in.
  std::mutex news_mutex_;
  std::condition_variable news_;
  std::uint64_t news_count_ = 0;
  Lane lanes_[lane_count];
  std::vector<direct::DirectLane>
      direct_;  // by lane; none where some rank's memory is out of reach
  const schedules::Program idle_program_;
  point::Point point_;
  std::vector<std::unique_ptr<schedules::Program>> programs_;
  const std::shared_ptr<OperationPool> pool_;
  Run::Room room_;
  std::uint64_t pending_ = 0;
  int waiters_ = 0;
  bool driving_ = false;
  int sleeping_ = 0;
  base::TimePoint contended_until_{};  // other programs want the cores: do not spin
  bool stopping_ = false;
  EngineStatistics statistics_;

  std::optional<Failure> failure_;    // holds for the communicator
  std::optional<Failure> suspicion_;  // seen here, not yet confirmed
  base::TimePoint suspicion_until_ = base::TimePoint::max();
  std::vector<Left> left_;  // ranks that have left in order
  base::TimePoint next_deadline_ =
      base::TimePoint::max();  // no operation ends before; may be too early
  base::TimePoint farewell_check_ =
      base::TimePoint::max();  // when a link that was closed in order counts as lost
  bool any_held_ = false;
  base::TimePoint stall_check_ =
      base::TimePoint::max();  // when to look whether anything has arrived since the last time
  std::uint64_t stall_reported_[lane_count] =
      {};  // the newest operation for which that has been reported
  std::uint64_t slow_reported_[lane_count + 1] = {};  // likewise, and of messages
  std::vector<std::function<void()>> reports_;        // to be made without the lock
  Operation* first_ended_ = nullptr;  // with callbacks to be made without the lock, in order
  Operation* last_ended_ = nullptr;

  base::FileDescriptor wake_, timer_;
  bool armed_ = false;
  std::thread background_;
};

}  // namespace rondo::engine
