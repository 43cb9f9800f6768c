// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <rondo/agreement.h>

#include <algorithm>
#include <cstring>

#include "grad/state.h"
#include "grad/tell_all.h"
#include "grad/wire.h"

namespace rondo {

void GradientBuckets::State::finish() {
  std::unique_lock lock(mutex_);
  launched_.wait(lock, [this] { return !launching_; });
  check_usable();
  if (phase_ == Phase::idle) refuse("finish() outside of a step: call begin_step() first");
  if (phase_ == Phase::local && accumulations_ == 0)
    refuse(
        fmt::format("finish(): the Accumulation of step {} was destroyed too early: keep it until "
                    "finish() has returned",
                    step_));
  mark_missing(lock);
  std::exception_ptr thrown;
  if (phase_ == Phase::synchronized) {
    phase_ = Phase::finishing;
    finishing_ = Clock::now();
    in_callbacks_ = {};
    lock.unlock();
    try {
      thrown = synchronize();
    } catch (...) {
      keep_failure();
      throw;
    }
    lock.lock();
  }
  if (phase_ != Phase::local) std::fill(accumulated_.begin(), accumulated_.end(), false);
  phase_ = Phase::idle;
  communicator_.release_bulk(this);
  if (thrown) std::rethrow_exception(thrown);
}

// Ranks that differ may wait in an operation that this one will never call, as that of a batch norm
// layer which it has evaluated: where they do not come to compare, they are told where they are.
void GradientBuckets::State::disagree() {
  constexpr std::chrono::seconds patience{2};
  Work meeting = communicator_.barrier(operation_options("gradients differ"));
  const bool met = meeting.wait_for(patience);
  communicator_.release_bulk(this);  // the comparison is an operation of its own
  if (met) throw_disagreement(communicator_, "gradient buckets", where(), Priority::bulk);
  const std::string text = fmt::format(
      "gradient buckets: ranks differ: rank {} {}, and not all others; some wait elsewhere and "
      "have not come "
      "to finish() "
      "within {} s",
      communicator_.rank(), where(), patience.count());
  grad::tell_all(communicator_, text);
  throw Error(Errc::mismatch, text);
}

// Returns what a callback of the caller has thrown.
std::exception_ptr GradientBuckets::State::synchronize() {
  Clock::time_point waiting = Clock::now();
  header_work_.wait();
  if (!header_arrived()) disagree();
  warn_of_weights();
  if (measuring_) measure_sizes();
  {
    std::unique_lock lock(mutex_);
    launch_ready(lock);
  }
  if (options_.find_unused && !buckets_.empty()) start_usage();
  if (tells_unused()) usage_work_.wait();
  forget_norms();
  std::exception_ptr thrown;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    const Clock::time_point ended = await(bucket);
    buckets_[bucket].exposed = std::max<Clock::duration>(
        ended - std::max(waiting, buckets_[bucket].started), Clock::duration::zero());
    take_in(bucket);
    if (!thrown) thrown = call_back(bucket);
    // Where all of them have been waited for at once, their ends alone tell them apart.
    waiting = tells_unused() ? std::max(waiting, ended) : Clock::now();
  }
  note_statistics();
  agree_on_order();
  release_works();
  note_step();
  return thrown;
}

// All at once: then the communicator has an operation for each of them after the first step,
// whatever overlaps in later ones.
void GradientBuckets::State::release_works() {
  for (Bucket& bucket : buckets_) bucket.work = Work();
  header_work_ = Work();
  usage_work_ = Work();
}

GradientBuckets::State::Clock::time_point GradientBuckets::State::await(std::size_t bucket) {
  buckets_[bucket].work.wait();
  // Another thread may have ended it and be on its way to note when.
  ended_[bucket].wait(0, std::memory_order_acquire);
  return Clock::time_point(Clock::duration(ended_[bucket].load(std::memory_order_relaxed)));
}

void GradientBuckets::State::take_in(std::size_t bucket) {
  const grad::BucketRange& range = layout_.buckets[bucket];
  const bool wire = storage_.has_wire(range.arena);
  if (!wire && !options_.norms && !tells_unused()) return;
  if (wire) send_again_if_too_large(bucket);
  const Buffer travelled = storage_.travelling(layout_, bucket);
  const DType type = layout_.arenas[range.arena].type;
  for (const std::size_t parameter : range.parameters) {
    const grad::GradientPiece piece = layout_.piece(bucket, parameter);
    std::byte* const values = storage_.gradients(range.arena) + piece.offset;
    const std::size_t count = piece.bytes / size_of(type);
    if (untouched(parameter)) {
      if (!wire && count != 0)
        std::memcpy(values, storage_.saved(range.arena) + piece.offset, piece.bytes);
      continue;
    }
    const std::size_t before =
        (piece.offset - range.offset) / size_of(type) * size_of(travelled.type);
    if (wire)
      grad::decode_wire(static_cast<const std::byte*>(travelled.data) + before, travelled.type,
                        plan_.wire_scale / unit_of(bucket, parameter),
                        reinterpret_cast<float*>(values), count);
    if (options_.norms) add_squares(parameter, piece);
  }
  if (options_.norms)
    for (const std::size_t parameter : range.completed) add_rest_of_squares(parameter);
}

std::exception_ptr GradientBuckets::State::call_back(std::size_t bucket) noexcept {
  if (!options_.on_bucket) return {};
  const Clock::time_point called = Clock::now();
  std::exception_ptr thrown;
  try {
    options_.on_bucket({bucket, layout_.buckets[bucket].completed});
  } catch (...) {  // the step goes on: the other ranks wait for this one's part
    thrown = std::current_exception();
  }
  in_callbacks_ += Clock::now() - called;
  return thrown;
}

void GradientBuckets::State::warn_of_weights() {
  if (options_.averaging != Averaging::mean || plan_.same_weights || warned_) return;
  warned_ = true;
  if (communicator_.rank() != 0) return;
  options_.warn(fmt::format(
      "gradient buckets: ranks give different weights (step {}), but Averaging::mean takes all "
      "ranks "
      "alike, so that samples of ranks with fewer of them count more: use Averaging::weighted",
      step_));
}

std::string GradientBuckets::State::describe() const {
  return rondo::grad::describe(layout_, parameters_);
}

std::string GradientBuckets::State::where() const {
  std::string text = fmt::format("in step {}", step_);
  if (check_ != 0) text += fmt::format(" with check {:#x}", check_);
  if (!plan_.same_buckets) text += " of " + title_;
  return text;
}

}  // namespace rondo
