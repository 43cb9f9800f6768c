// SPDX-License-Identifier: Apache-2.0
//
// Messages between two ranks, as far as the engine has to do with them: it gives them operations,
// links and time.
#include <algorithm>

#include <fmt/format.h>

#include "collectives/engine/engine.h"
#include "collectives/engine/guard.h"

namespace rondo::engine {

Operation* Engine::start(const point::PointCall& call) {
  std::unique_lock lock = Guard::acquire(*this);
  schedules::Call as_call;
  const point::PointTransfer& first = call.transfers.front();
  as_call.signature.operation = call.shape.operation;
  as_call.signature.type = first.type;
  as_call.signature.count = first.count;
  as_call.time_limit = call.time_limit;
  as_call.tag = call.tag;
  for (const point::PointTransfer& t : call.transfers) {
    schedules::Call memory;
    (t.sending ? memory.in_bytes : memory.out_bytes) = t.count * size_of(t.type);
    memory.in = memory.out = t.data;
    wait_for_buffers(lock, memory);
  }
  const base::TimePoint now = base::Clock::now();
  point_.reserve(call);  // what can throw comes before a number is taken
  Operation& operation = *take_operation();
  operation.begin(as_call, point_.next_number(), now);
  operation.lane = transports::Lane::messages;
  operation.point = call.shape;
  operation.add_reference();
  ++statistics_.operations;
  if (failure_) {
    operation.end(Operation::State::failed, failure_->code,
                  text(operation) + ": " + failure_->cause);
    operation.drop();
    return &operation;
  }
  ++pending_;
  next_deadline_ = std::min(next_deadline_, operation.deadline);
  if (options_.warn_after.count() > 0) stall_check_ = std::min(stall_check_, now + stall_time);
  try {
    point_.begin(operation, call);
    if (!suspicion_ && !failure_) point_.send_ready();
  } catch (const std::exception& error) {
    suspect({Errc::system, fmt::format("rank {} cannot go on: {}", options_.rank, error.what())});
  }
  if (operation.state() == Operation::State::running) {
    try_pass();
    if (sleeping_ > 0 && operation.state() == Operation::State::running) wake();
  }
  if (pending_ > 0 && waiters_ == 0) arm_background(background_delay);
  deliver(lock);
  return &operation;
}

bool Engine::awaits_header(transports::Link& link) {
  return link.lane() == transports::Lane::messages && !failure_ && !suspicion_ &&
         point_.awaits_header(link);
}

transports::Link& Engine::point_link(int peer) {
  return routes_[static_cast<std::size_t>(peer)]->link(peer, transports::Lane::messages);
}

void Engine::point_finished(Operation& operation) {
  end(operation, Operation::State::done, {}, {});
}

void Engine::point_failed(Failure failure) {
  suspect(std::move(failure));
}

// Rank 0 finds out whether a rank has stopped altogether; else what this rank misses is the cause.
// Operations of this lane are not numbered alike on all ranks: 0 says that there is none to
// compare.
void Engine::expire_point(const Operation& operation) {
  const double limit = std::chrono::duration<double>(operation.time_limit).count();
  const std::string view = fmt::format("not done within {:.4g} s on rank {}: {}", limit,
                                       options_.rank, point_.missing(operation));
  if (observer_ == nullptr) return adopt({Errc::deadline_exceeded, view});
  reports_.push_back([this, limit = operation.time_limit, view] {
    observer_->deadline(Priority::bulk, 0, limit, view);
  });
  suspicion_ = Failure{Errc::deadline_exceeded, view};
  suspicion_until_ = base::Clock::now() + verdict_time;
}

}  // namespace rondo::engine
