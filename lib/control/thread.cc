// SPDX-License-Identifier: Apache-2.0
#include "lib/control/thread.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include <rondo/error.h>

#include "base/interruption.h"
#include "base/text.h"
#include "lib/wire/socket.h"

namespace rondo::control {
namespace {

// How long the end of the control plane lets its last messages leave. The destructor of a
// communicator counts on this bound.
constexpr milliseconds flush_time{250};

}  // namespace

CommandQueue::CommandQueue() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_) throw Error(Errc::system, "eventfd: " + base::describe_errno(errno));
}

void CommandQueue::post(Command command) {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
  }
  const std::uint64_t one = 1;
  // A full counter can only mean that the thread was woken already.
  [[maybe_unused]] const ssize_t written = ::write(event_.get(), &one, sizeof one);
}

std::vector<Command> CommandQueue::take_all() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t had = ::read(event_.get(), &count, sizeof count);
  const std::lock_guard lock(mutex_);
  return std::exchange(commands_, {});
}

void ConstantsSlot::put(const PlanConstants& constants) {
  const std::lock_guard lock(mutex_);
  constants_ = constants;
  changed_.notify_all();
}

void ConstantsSlot::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

std::optional<PlanConstants> ConstantsSlot::wait_until(base::TimePoint until) {
  std::unique_lock lock(mutex_);
  base::wait_until(changed_, lock, until, [&] { return constants_ || closed_; });
  return constants_;
}

void Gate::open() {
  {
    const std::lock_guard lock(mutex_);
    open_ = true;
  }
  opened_.notify_all();
}

void Gate::wait_until(base::TimePoint until) {
  std::unique_lock lock(mutex_);
  opened_.wait_until(lock, until, [this] { return open_; });
}

void ReadySlot::open() {
  {
    const std::lock_guard lock(mutex_);
    open_ = !failure_;  // the first of the two counts
  }
  changed_.notify_all();
}

void ReadySlot::fail(const operation::Failure& failure) {
  {
    const std::lock_guard lock(mutex_);
    // Once all ranks are ready, connect() returns on every rank, and an operation reports the
    // failure.
    if (!failure_ && !open_) failure_ = failure;
  }
  changed_.notify_all();
}

bool ReadySlot::wait_until(base::TimePoint until, std::optional<operation::Failure>& failure) {
  std::unique_lock lock(mutex_);
  base::wait_until(changed_, lock, until, [this] { return open_ || failure_; });
  // If all were ready before the failure, connect() has succeeded on every rank.
  failure = open_ ? std::nullopt : failure_;
  return open_ || failure_;
}

std::optional<operation::Failure> ReadySlot::wait_for_failure(base::TimePoint until) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until, [this] { return failure_.has_value(); });
  return failure_;
}

void Events::start(ControlClient& client) {
  client_ = &client;
  for (const wire::LeftMessage& message : left_)
    client_->peer_left(static_cast<int>(message.rank), message.finished);
  if (failure_) client_->failed(*failure_);
}

void Events::failed(const operation::Failure& failure) {
  if (failure_) return;
  failure_ = failure;
  ready_.fail(failure);
  if (client_ != nullptr) client_->failed(failure);
}

void Events::peer_left(int rank, const std::uint64_t (&finished)[lane_count]) {
  wire::LeftMessage message;
  message.rank = static_cast<std::uint32_t>(rank);
  std::copy(std::begin(finished), std::end(finished), std::begin(message.finished));
  left_.push_back(message);
  if (client_ != nullptr) client_->peer_left(rank, finished);
}

operation::Failure Events::true_cause(const operation::Failure& failure) const {
  if (failure.lost < 0) return failure;
  for (const wire::LeftMessage& left : left_)
    if (left.rank == static_cast<std::uint32_t>(failure.lost))
      return operation::left_failure(failure.lost, left.finished);
  return failure;
}

void flush(const std::vector<wire::Stream*>& streams) {
  const base::TimePoint until = base::after(base::Clock::now(), flush_time);
  for (;;) {
    std::vector<pollfd> entries;
    for (wire::Stream* stream : streams) {
      stream->write();
      if (stream->has_unsent() && !stream->ended())
        entries.push_back({stream->descriptor(), POLLOUT, 0});
    }
    const base::TimePoint now = base::Clock::now();
    if (entries.empty() || now >= until) break;
    ::poll(entries.data(), entries.size(), base::poll_timeout(now, until));
  }
  for (wire::Stream* stream : streams) stream->finish_sending();
}

}  // namespace rondo::control
