// SPDX-License-Identifier: Apache-2.0
//
// What the hub and the spokes of the control plane have in common: a thread that sleeps until a
// command or a message comes, and the way from it to the client.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/file_descriptor.h"
#include "lib/control/control.h"
#include "lib/control/messages.h"

namespace rondo::control {

struct StartCommand {
  ControlClient* client = nullptr;
};
struct LeaveCommand {
  std::uint64_t finished[lane_count] = {};
  base::TimePoint until;
};
struct StopCommand {};
struct ReadyCommand {
  base::TimePoint until;
};
// A process that ends without a farewell may have finished its operations: what it sent last is
// still on its way to the others, who should be able to finish them too.
inline constexpr milliseconds last_words_time{150};
struct Loss {
  engine::Failure failure;
  base::TimePoint due;
};

using Command = std::variant<StartCommand, ReportMessage, DeadlineMessage, LeaveCommand,
                             StopCommand, ConstantsMessage, ReadyCommand>;

// Commands on their way to the thread. Thread-safe; the descriptor is readable while there are any.
class CommandQueue {
 public:
  CommandQueue();
  void post(Command command);
  std::vector<Command> take_all();
  int descriptor() const noexcept { return event_.get(); }

 private:
  base::FileDescriptor event_;
  std::mutex mutex_;
  std::vector<Command> commands_;
};

// Where await_constants() waits for the thread.
class ConstantsSlot {
 public:
  void put(const plan::CostConstants& constants);
  void close();  // none will come
  std::optional<plan::CostConstants> wait_until(base::TimePoint until);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<plan::CostConstants> constants_;
  bool closed_ = false;
};

// Where leave() waits for the thread.
class Gate {
 public:
  void open();
  void wait_until(base::TimePoint until);

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

// Where connect() waits for the thread: until all ranks are ready, or the communicator has failed.
// Thread-safe.
class ReadySlot {
 public:
  void open();  // all are ready
  void fail(const engine::Failure& failure);
  // False when the time is up; else `failure` says whether and how the communicator has failed.
  bool wait_until(base::TimePoint until, std::optional<engine::Failure>& failure);
  std::optional<engine::Failure> wait_for_failure(base::TimePoint until);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  std::optional<engine::Failure> failure_;
};

// Keeps what happens before the client is there. Thread-bound to the control thread.
class Outlet {
 public:
  void start(ControlClient& client);
  // The first failure counts; further ones are dropped.
  void failed(const engine::Failure& failure);
  bool has_failed() const noexcept { return failure_.has_value(); }
  void peer_left(int rank, const std::uint64_t (&finished)[lane_count]);
  // The failure, unless the missing rank has left in order: then its leaving.
  engine::Failure true_cause(const engine::Failure& failure) const;
  bool has_client() const noexcept { return client_ != nullptr; }
  engine::RankStatus status() const {
    return client_ == nullptr ? engine::RankStatus{} : client_->status();
  }
  ReadySlot& ready() noexcept { return ready_; }  // any thread may use it

 private:
  ControlClient* client_ = nullptr;
  ReadySlot ready_;
  std::optional<engine::Failure> failure_;
  std::vector<LeftMessage> left_;  // in the order in which they left
};

// How much longer than its deadline a rank waits for rank 0 to say how connect() ends.
inline constexpr milliseconds ready_grace{1'000};

// Sends what the streams still hold, for a short bounded time, and then the end.
void flush(const std::vector<rendezvous::Stream*>& streams);

}  // namespace rondo::control
