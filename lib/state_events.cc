// SPDX-License-Identifier: Apache-2.0
//
// Passes events between the engine and the control plane. The control thread runs before the engine
// exists. Events that come before it are kept; a failure also ends a transport's start() that waits
// for other ranks.
#include <algorithm>

#include <fmt/format.h>

#include <rondo/error.h>

#include "base/log.h"
#include "lib/metrics/path.h"

#include "lib/state.h"

namespace rondo::lib {

void CommunicatorState::begin_work() {
  std::optional<operation::Failure> failure;
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

void CommunicatorState::failure(const operation::Failure& failure) {
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
void CommunicatorState::late(const operation::LateReport& report) {
  const auto rank = static_cast<std::size_t>(report.rank);
  base::log_line(
      base::LogLevel::warning,
      fmt::format(
          "rank {} has waited for rank {} (host {}) alone in {} of its last {} collectives, "
          "{:.3g} ms each in the mean, when all others of which it hears had called. Look on "
          "that host for more work than elsewhere, other programs on its cores, a slow "
          "processor or GPU, or slow input (docs/reference/metrics.md)",
          place_.rank, report.rank, rank < host_names_.size() ? host_names_[rank] : "unknown",
          report.times, report.calls,
          std::chrono::duration<double, std::milli>(report.each).count()));
}

void CommunicatorState::begin_metrics() {
  if (options_.metrics.empty()) return;
  const int rank = place_.rank_outside(place_.rank);
  listing_.emplace(metrics::path_of(options_.metrics, rank),
                   metrics::labels_of(options_.metrics_labels, options_.metrics, joined_.job),
                   options_.metrics_period, [this, rank] {
                     return metrics::Sample{rank, place_.ranks, transport_name_, statistics(),
                                            engine_->tag_counts()};
                   });
}

Statistics CommunicatorState::statistics() {
  Statistics result = engine().statistics();
  add_segments(result, transports_);
  return result;
}

operation::RankStatus CommunicatorState::status() {
  {
    const std::lock_guard lock(starting_mutex_);
    if (!working_) return {};
  }
  return engine_->status();
}
void CommunicatorState::failed(const operation::Failure& failure) {
  {
    const std::lock_guard lock(starting_mutex_);
    if (!working_) {
      early_failure_ = failure;
      for (const auto& transport : transports_) interrupt_start(*transport, failure.cause);
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
