// SPDX-License-Identifier: Apache-2.0
#include "lib/control/thread.h"

#include <poll.h>

#include <cerrno>

#include <rondo/error.h>

#include "base/text.h"

namespace rondo::control {
namespace {

// How long the end of the control plane lets its last messages leave. The destructor of a
// communicator counts on this bound.
constexpr milliseconds flush_time{250};

}  // namespace

CommandQueue::CommandQueue() {
  if (!event_) throw Error(Errc::system, "eventfd: " + base::describe_errno(errno));
}

void CommandQueue::post(Command command) {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back(std::move(command));
  }
  event_.set();
}

std::vector<Command> CommandQueue::take_all() {
  event_.clear();
  const std::lock_guard lock(mutex_);
  return std::exchange(commands_, {});
}

void Events::start(ControlClient& client) {
  client_ = &client;
  for (const wire::LeftMessage& message : left_)
    client_->peer_left(static_cast<int>(message.rank), message.finished);
  if (failure_) client_->failed(*failure_, heard_);
}

void Events::failed(const operation::Failure& failure, Heard heard) {
  if (failure_) return;
  failure_ = failure;
  heard_ = std::move(heard);
  answers_.ready.put(failure);
  answers_.constants.put(std::nullopt);
  if (client_ != nullptr) client_->failed(failure, heard_);
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
    if (left.rank == static_cast<std::uint32_t>(failure.lost)) {
      operation::Failure leaving = operation::left_failure(failure.lost, left.finished);
      leaving.seen_by = failure.seen_by;
      return leaving;
    }
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
