// SPDX-License-Identifier: Apache-2.0
//
// Passes events between the engine and the control plane. The control thread runs before the engine
// exists. Events that come before it are kept; a failure also ends a transport's start() that waits
// for other ranks.
#include <algorithm>

#include <rondo/error.h>

#include "lib/state.h"

namespace rondo::lib {

void CommunicatorState::begin_work() {
  std::optional<engine::Failure> failure;
  std::vector<Departure> departures;
  {
    const std::lock_guard lock(starting_mutex_);
    working_ = true;
    failure = early_failure_;
    departures.swap(early_departures_);
  }
  for (const Departure& one : departures) engine_->peer_left(one.rank, one.finished);
  if (failure) engine_->fail(*failure);
}

void CommunicatorState::failure(const engine::Failure& failure) {
  joined_.control->report(failure);
}
void CommunicatorState::deadline(Priority lane, std::uint64_t number, nanoseconds limit,
                                 const std::string& view) {
  joined_.control->report_deadline(lane, number, limit, view);
}
void CommunicatorState::stalled(Priority lane, std::uint64_t number) {
  joined_.control->report_stall(lane, number);
}
void CommunicatorState::slow(Priority lane, std::uint64_t number, nanoseconds waited) {
  joined_.control->report_slow(lane, number, waited);
}
engine::RankStatus CommunicatorState::status() {
  {
    const std::lock_guard lock(starting_mutex_);
    if (!working_) return {};
  }
  return engine_->status();
}
void CommunicatorState::failed(const engine::Failure& failure) {
  {
    const std::lock_guard lock(starting_mutex_);
    if (!working_) {
      early_failure_ = failure;
      for (const auto& transport : transports_) transport->interrupt(failure.cause);
      return;
    }
  }
  engine_->fail(failure);
}
void CommunicatorState::peer_left(int rank, const std::uint64_t (&finished)[lane_count]) {
  {
    const std::lock_guard lock(starting_mutex_);
    if (!working_) {
      Departure departure{rank, {}};
      std::ranges::copy(finished, departure.finished);
      return early_departures_.push_back(departure);
    }
  }
  engine_->peer_left(rank, finished);
}

}  // namespace rondo::lib
