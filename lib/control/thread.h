// SPDX-License-Identifier: Apache-2.0
//
// Commands, answers and events that pass between the communicator's threads and the control thread.
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
#include "base/event.h"
#include "base/interruption.h"
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
  int descriptor() const noexcept { return event_.descriptor(); }

 private:
  base::Event event_;
  std::mutex mutex_;
  std::vector<Command> commands_;
};

// Where the communicator waits for a value from the control thread. The first one counts.
// Thread-safe.
template <class T>
class Slot {
 public:
  void put(T value) {
    {
      const std::lock_guard lock(mutex_);
      if (!value_) value_.emplace(std::move(value));
    }
    came_.notify_all();
  }
  // No value if time is up.
  std::optional<T> wait_until(base::TimePoint until) {
    std::unique_lock lock(mutex_);
    came_.wait_until(lock, until, [this] { return value_.has_value(); });
    return value_;
  }
  // Waits likewise in connect(), which the program may interrupt.
  std::optional<T> await(base::TimePoint until) {
    std::unique_lock lock(mutex_);
    base::wait_until(came_, lock, until, [this] { return value_.has_value(); });
    return value_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::optional<T> value_;
};

struct Answers {
  // For connect(): all ranks are ready, or the communicator has failed before they were.
  Slot<std::optional<operation::Failure>> ready;
  Slot<std::optional<PlanConstants>> constants;  // or none will come
  Slot<bool> left;
};

// Passes events to the client and keeps those that come before it. Thread-bound to the control
// thread.
class Events {
 public:
  explicit Events(Answers& answers) noexcept : answers_(answers) {}

  void start(ControlClient& client);
  // The first failure counts; further ones are dropped.
  void failed(const operation::Failure& failure, Heard heard = {});
  bool has_failed() const noexcept { return failure_.has_value(); }
  void peer_left(int rank, const std::uint64_t (&finished)[lane_count]);
  // Returns the failure; if the rank that it misses has left in order, its leaving instead.
  operation::Failure true_cause(const operation::Failure& failure) const;
  bool has_client() const noexcept { return client_ != nullptr; }
  operation::RankStatus status() const {
    return client_ == nullptr ? operation::RankStatus{} : client_->status();
  }

 private:
  Answers& answers_;
  ControlClient* client_ = nullptr;
  std::optional<operation::Failure> failure_;
  Heard heard_;
  std::vector<wire::LeftMessage> left_;  // in the order in which they left
};

// Sends what the streams still hold, for a short bounded time, and then ends their sending side.
void flush(const std::vector<wire::Stream*>& streams);

}  // namespace rondo::control
