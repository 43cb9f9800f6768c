// SPDX-License-Identifier: Apache-2.0
//
// The parts that the hub and the spokes of the control plane share: a thread that sleeps until a
// command or a message comes, and its way to the client.
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
#include "lib/wire/messages.h"

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
// How long a loss waits before it is reported. A process that ends without a farewell may have
// finished its operations. Its last frames are still under way, and the others should be able to
// finish too.
inline constexpr milliseconds last_words_time{150};
struct Loss {
  operation::Failure failure;
  base::TimePoint due;
};

using Command = std::variant<StartCommand, wire::ReportMessage, wire::DeadlineMessage, LeaveCommand,
                             StopCommand, wire::ConstantsMessage, ReadyCommand>;

// Commands for the thread. Thread-safe; locks its mutex. The descriptor is readable while there are
// commands.
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

// Where await_constants() waits for the thread. Thread-safe.
class ConstantsSlot {
 public:
  void put(const PlanConstants& constants);
  void close();  // no constants will come
  std::optional<PlanConstants> wait_until(base::TimePoint until);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<PlanConstants> constants_;
  bool closed_ = false;
};

// Where leave() waits for the thread. Thread-safe.
class Gate {
 public:
  void open();
  void wait_until(base::TimePoint until);

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

// Where connect() waits for the thread: until all ranks are ready or the communicator has failed.
// Thread-safe.
class ReadySlot {
 public:
  void open();  // all are ready
  void fail(const operation::Failure& failure);
  // Returns false if time is up; else `failure` says whether and how the communicator has failed.
  bool wait_until(base::TimePoint until, std::optional<operation::Failure>& failure);
  std::optional<operation::Failure> wait_for_failure(base::TimePoint until);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  std::optional<operation::Failure> failure_;
};

// Passes events to the client and keeps those that come before it. Thread-bound to the control
// thread.
class Events {
 public:
  void start(ControlClient& client);
  // The first failure counts; further ones are dropped.
  void failed(const operation::Failure& failure);
  bool has_failed() const noexcept { return failure_.has_value(); }
  void peer_left(int rank, const std::uint64_t (&finished)[lane_count]);
  // Returns the failure; if the rank that it misses has left in order, its leaving instead.
  operation::Failure true_cause(const operation::Failure& failure) const;
  bool has_client() const noexcept { return client_ != nullptr; }
  operation::RankStatus status() const {
    return client_ == nullptr ? operation::RankStatus{} : client_->status();
  }
  ReadySlot& ready() noexcept { return ready_; }  // any thread may use it

 private:
  ControlClient* client_ = nullptr;
  ReadySlot ready_;
  std::optional<operation::Failure> failure_;
  std::vector<wire::LeftMessage> left_;  // in the order in which they left
};

// How long after its deadline a rank still waits for rank 0 to say how connect() ends.
inline constexpr milliseconds ready_grace{1'000};

// Sends what the streams still hold, for a short bounded time, and then ends their sending side.
void flush(const std::vector<wire::Stream*>& streams);

}  // namespace rondo::control
