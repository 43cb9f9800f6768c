// SPDX-License-Identifier: Apache-2.0
#include "grad/statistics.h"

namespace rondo::grad {

namespace {

double microseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

}  // namespace

void Statistics::begin_step(std::uint64_t step, Time begun) {
  number_ = step;
  begun_ = begun;
}

void Statistics::forget_buckets() {
  buckets_.clear();
}

void Statistics::add(const Buffer& travelled, std::size_t parameters, const BucketTimes& times,
                     int ranks) {
  const double n = ranks;
  BucketStatistics& s = buckets_.emplace_back();
  s.bucket = buckets_.size() - 1;
  s.type = travelled.type;
  s.parameters = parameters;
  s.bytes = travelled.count * size_of(travelled.type);
  s.ready_us = microseconds(times.complete - begun_);
  s.queued_us = microseconds(times.launched - times.complete);
  s.wire_us = microseconds(times.ended - times.launched);
  s.exposed_us = microseconds(times.exposed);
  if (s.wire_us > 0)
    s.bus_bandwidth = static_cast<double>(s.bytes) * 2 * (n - 1) / n / s.wire_us * 1e6;
}

void Statistics::finish_step(Time finish_called, std::chrono::nanoseconds in_callbacks) {
  const Time now = std::chrono::steady_clock::now();
  step_ = {number_, microseconds(now - begun_), microseconds(now - finish_called - in_callbacks)};
}

}  // namespace rondo::grad
