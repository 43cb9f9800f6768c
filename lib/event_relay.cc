// SPDX-License-Identifier: Apache-2.0
#include "lib/event_relay.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/log.h"

namespace rondo::lib {

void EventRelay::listen(control::Control& control) {
  control_ = &control;
  control.start(*this);
}

void EventRelay::begin(engine::Engine& engine) {
  std::optional<operation::Failure> failure;
  std::vector<Departure> departures;
  {
    const std::lock_guard lock(mutex_);
    engine_ = &engine;
    failure = early_failure_;
    departures.swap(early_departures_);
  }
  for (const Departure& one : departures) engine.peer_left(one.rank, one.finished);
  if (failure) engine.fail(*failure);
}

void EventRelay::failure(const operation::Failure& failure) {
  control_->report(failure);
}
void EventRelay::deadline(Priority lane, std::uint64_t number, nanoseconds limit,
                          const std::string& view) {
  control_->report_deadline(lane, number, limit, view);
}
void EventRelay::stalled(Priority lane, std::uint64_t number) {
  control_->report_stall(lane, number);
}
void EventRelay::slow(Priority lane, std::uint64_t number, nanoseconds waited) {
  control_->report_slow(lane, number, waited);
}
void EventRelay::late(const operation::LateReport& report) {
  const auto rank = static_cast<std::size_t>(report.rank);
  base::log_line(
      base::LogLevel::warning,
      fmt::format(
          "rank {} has waited for rank {} (host {}) alone in {} of its last {} collectives, "
          "{:.3g} ms each in the mean, when all others of which it hears had called. Look on "
          "that host for more work than elsewhere, other programs on its cores, a slow "
          "processor or GPU, or slow input (docs/reference/metrics.md)",
          place_.rank, report.rank, rank < hosts_.names.size() ? hosts_.names[rank] : "unknown",
          report.times, report.calls,
          std::chrono::duration<double, std::milli>(report.each).count()));
}

operation::RankStatus EventRelay::status() {
  {
    const std::lock_guard lock(mutex_);
    if (engine_ == nullptr) return {};
  }
  return engine_->status();
}
void EventRelay::failed(const operation::Failure& failure) {
  {
    const std::lock_guard lock(mutex_);
    if (engine_ == nullptr) {
      early_failure_ = failure;
      return routes_.interrupt(failure.cause);
    }
  }
  engine_->fail(failure);
}
void EventRelay::peer_left(int rank, const std::uint64_t (&finished)[lane_count]) {
  {
    const std::lock_guard lock(mutex_);
    if (engine_ == nullptr) {
      Departure departure{rank, {}};
      std::ranges::copy(finished, departure.finished);
      return early_departures_.push_back(departure);
    }
  }
  engine_->peer_left(rank, finished);
}

}  // namespace rondo::lib
