// SPDX-License-Identifier: Apache-2.0
#include "grad/statistics.h"

#include <fmt/format.h>

#include <iterator>

#include "grad/state.h"

namespace rondo {

void GradientBuckets::State::note_statistics() {
  const auto microseconds = [](Clock::duration time) {
    return std::chrono::duration<double, std::micro>(time).count();
  };
  const double n = communicator_.size();
  statistics_.clear();
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    const Bucket& bucket = buckets_[i];
    const Buffer travelled = storage_.travelling(layout_, i);
    const Clock::time_point ended(Clock::duration(ended_[i].load(std::memory_order_relaxed)));
    BucketStatistics& s = statistics_.emplace_back();
    s.bucket = i;
    s.type = travelled.type;
    s.parameters = layout_.buckets[i].parameters.size();
    s.bytes = travelled.count * size_of(travelled.type);
    s.ready_us = microseconds(bucket.ready - begun_);
    s.queued_us = microseconds(bucket.started - bucket.ready);
    s.wire_us = microseconds(ended - bucket.started);
    s.exposed_us = microseconds(bucket.exposed);
    if (s.wire_us > 0)
      s.bus_bandwidth = static_cast<double>(s.bytes) * 2 * (n - 1) / n / s.wire_us * 1e6;
    trace_.add(i, s.bytes, bucket.ready, bucket.started, ended);
  }
}

void GradientBuckets::State::note_step() {
  const auto microseconds = [](Clock::duration time) {
    return std::chrono::duration<double, std::micro>(time).count();
  };
  const Clock::time_point now = Clock::now();
  step_statistics_ = {step_, microseconds(now - begun_),
                      microseconds(now - finishing_ - in_callbacks_)};
  trace_.finish(finishing_, now);
}

void GradientBuckets::State::keep_trace(std::size_t steps) {
  if (phase_ != Phase::idle)
    refuse("keep_trace() in a step: call it before begin_step() or after finish()");
  trace_ = grad::Trace(steps, buckets_.size());
}

void GradientBuckets::State::save_trace(const std::string& path) const {
  if (phase_ != Phase::idle)
    refuse("save_trace() in a step: call it before begin_step() or after finish()");
  trace_.save(communicator_, path);
}

std::string grad::table_of(std::span<const BucketStatistics> statistics,
                           const StepStatistics& step) {
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

}  // namespace rondo
