// SPDX-License-Identifier: Apache-2.0
#include "lib/event_relay.h"

#include <fmt/format.h>

#include "base/log.h"

namespace rondo::lib {

void EventRelay::begin(engine::Engine& engine, recorder::Dumps& dumps) {
  engine_ = &engine;
  dumps_ = &dumps;
  control_.start(*this);
}

void EventRelay::failure(const operation::Failure& failure) {
  control_.report(failure);
}
void EventRelay::deadline(Priority lane, std::uint64_t number, nanoseconds limit,
                          const std::string& view) {
  control_.report_deadline(lane, number, limit, view);
}
void EventRelay::stalled(Priority lane, std::uint64_t number) {
  control_.report_stall(lane, number);
}
void EventRelay::slow(Priority lane, std::uint64_t number, nanoseconds waited) {
  control_.report_slow(lane, number, waited);
  if (dumps_ != nullptr) dumps_->waits([this] { return engine_->snapshot(); });
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
  return engine_->status();
}
void EventRelay::failed(const operation::Failure& failure, const control::Heard& heard) {
  {
    const std::lock_guard lock(mutex_);
    heard_ = heard;
  }
  engine_->fail(failure);
}
void EventRelay::peer_left(int rank, const std::uint64_t (&finished)[lane_count]) {
  engine_->peer_left(rank, finished);
}

control::Heard EventRelay::heard() const {
  const std::lock_guard lock(mutex_);
  return heard_;
}

}  // namespace rondo::lib
