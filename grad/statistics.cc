// SPDX-License-Identifier: Apache-2.0
#include "grad/statistics.h"

#include <fmt/format.h>

#include <iterator>

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

std::string table_of(std::span<const BucketStatistics> statistics, const StepStatistics& step) {
  std::string text =
      fmt::format("{:>6} {:>5} {:>10} {:>12} {:>10} {:>10} {:>10} {:>10} {:>8}\n", "bucket", "type",
                  "parameters", "bytes", "ready us", "queued us", "wire us", "exposed us", "GB/s");
  BucketStatistics sum;
  for (const BucketStatistics& s : statistics) {
    fmt::format_to(std::back_inserter(text),
                   "{:>6} {:>5} {:>10} {:>12} {:>10.0f} {:>10.0f} {:>10.0f} {:>10.0f} {:>8.3f}\n",
                   s.bucket, name_of(s.type), s.parameters, s.bytes, s.ready_us, s.queued_us,
                   s.wire_us, s.exposed_us, s.bus_bandwidth / 1e9);
    sum.bytes += s.bytes;
    sum.wire_us += s.wire_us;
    sum.exposed_us += s.exposed_us;
  }
  fmt::format_to(std::back_inserter(text),
                 "{:>6} {:>5} {:>10} {:>12} {:>10} {:>10} {:>10.0f} {:>10.0f}\n", "all", "", "",
                 sum.bytes, "", "", sum.wire_us, sum.exposed_us);
  const double percent = step.step_us > 0 ? 100 * step.exposed_us / step.step_us : 0;
  fmt::format_to(std::back_inserter(text),
                 "step {}: {:.0f} us, of which finish() took {:.0f} us ({:.1f} %)\n", step.step,
                 step.step_us, step.exposed_us, percent);
  return text;
}

}  // namespace rondo::grad
