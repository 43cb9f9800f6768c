// SPDX-License-Identifier: Apache-2.0
#include "grad/trace.h"

#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <optional>

#include <rondo/error.h>

#include "grad/trace_exchange.h"
#include "grad/trace_file.h"

namespace rondo::grad {

namespace {

std::int64_t nanoseconds(Trace::Time at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

constexpr std::size_t problem_bytes = 1024;

// Makes rank 0's problem the error of every rank.
void share_problem(Communicator& communicator, const std::string& problem) {
  std::vector<std::uint8_t> text(problem_bytes);
  problem.copy(reinterpret_cast<char*>(text.data()), text.size() - 1);
  OpOptions options;
  options.tag = "save_trace";
  communicator.broadcast(buffer_of(std::span(text)), buffer_of(std::span(text)), 0, options).wait();
  if (text[0] == 0) return;
  const char* const said = reinterpret_cast<const char*>(text.data());
  throw Error(Errc::system, fmt::format("save_trace: rank 0 {}",
                                        std::string(said, ::strnlen(said, text.size()))));
}

}  // namespace

Trace::Trace(std::size_t steps, std::size_t buckets_per_step) : most_steps_(steps) {
  expect(buckets_per_step);
  kept_.steps.reserve(steps);
}

void Trace::expect(std::size_t buckets_per_step) {
  const std::size_t to_come = most_steps_ - kept_.steps.size();
  const std::size_t each = std::max<std::size_t>(buckets_per_step, 1);
  if (to_come > (most_buckets - std::min(most_buckets, kept_.buckets.size())) / each)
    throw Error(
        Errc::invalid_argument,
        fmt::format(
            "keep_trace: {} steps of {} buckets are too many: at most {} buckets can be kept; "
            "keep fewer steps",
            most_steps_, each, most_buckets));
  kept_.buckets.reserve(kept_.buckets.size() + to_come * each);
}

void Trace::begin_step(std::uint64_t step, Time at) {
  kept_.buckets.resize(finished_buckets_);  // drops those of a step that never finished
  keeping_ = kept_.steps.size() < most_steps_;
  current_ = {step, nanoseconds(at), 0, 0};
}

void Trace::add(std::size_t bucket, std::size_t bytes, Time ready, Time started, Time ended) {
  if (!keeping_ || kept_.buckets.size() == most_buckets) return;
  kept_.buckets.push_back(
      {current_.step, bucket, bytes, nanoseconds(ready), nanoseconds(started), nanoseconds(ended)});
}

void Trace::finish(Time called, Time at) {
  if (!keeping_) return;
  keeping_ = false;
  current_.waited = nanoseconds(called);
  current_.finished = nanoseconds(at);
  kept_.steps.push_back(current_);
  finished_buckets_ = kept_.buckets.size();
}

void Trace::save(Communicator& communicator, const std::string& path) const {
  std::optional<TraceFile> file;
  if (communicator.rank() == 0) file.emplace(path);
  const int size = communicator.size();
  exchange_traces(communicator, kept_,
                  [&](int rank, const RankTrace& trace) { file->add_rank(rank, size, trace); });
  share_problem(communicator, file ? file->commit() : std::string());
}

}  // namespace rondo::grad
