// SPDX-License-Identifier: Apache-2.0
//
// Starting collectives. One thread at a time is the launcher; it works without the lock, so that
// other gradients can become ready meanwhile, and looks again before it gives up its role, so that
// none of their buckets is forgotten.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "grad/state.h"
#include "grad/wire.h"

namespace rondo {

OpOptions GradientBuckets::State::operation_options(std::string_view tag) const {
  OpOptions options;
  options.deadline = options_.deadline;
  options.tag = tag;
  options.owner = this;
  return options;
}

void GradientBuckets::State::start_header() {
  const Buffer buffer = buffer_of(std::span<double>(header_));
  header_work_ = communicator_.all_reduce(buffer, buffer, ReduceOp::sum,
                                          operation_options("gradients header"));
}

// Whether buckets may start. What went wrong otherwise is for finish() to say.
bool GradientBuckets::State::header_arrived() {
  if (planned_) return plan_.agreed;
  if (!header_work_.done() || header_work_.error()) return false;
  grad::HeaderValues values;
  std::copy_n(header_.begin(), values.size(), values.begin());
  plan_ = grad::make_plan(values, options_.averaging, weight_, communicator_.size());
  if (tells_unused()) storage_.make_room_to_save();
  if (plan_.agreed) take_sizes();
  planned_ = true;
  return plan_.agreed;
}

void GradientBuckets::State::launch_ready(std::unique_lock<std::mutex>& lock) {
  const auto has_next = [this] { return next_ < buckets_.size() && buckets_[next_].waiting == 0; };
  if (launching_ || !has_next() || !header_work_.done()) return;
  launching_ = true;
  bool going = true;
  std::exception_ptr thrown;
  while (going && has_next()) {
    const std::size_t bucket = next_;
    lock.unlock();
    try {
      going = header_arrived() && !measuring_;
      if (going) launch(bucket);
    } catch (...) {
      thrown = std::current_exception();
      keep_failure();
      going = false;
    }
    lock.lock();
    if (going) ++next_;
  }
  launching_ = false;
  launched_.notify_all();
  if (thrown) std::rethrow_exception(thrown);
}

void GradientBuckets::State::launch(std::size_t bucket) {
  if (bucket == 0 && plan_.hints && !options_.find_unused) start_usage();
  contribute(bucket);
  char tag[32];
  const auto end = fmt::format_to_n(tag, sizeof tag, "gradients bucket {}", bucket).out;
  OpOptions options = operation_options(std::string_view(tag, static_cast<std::size_t>(end - tag)));
  const bool wire = storage_.has_wire(layout_.buckets[bucket].arena);
  if (!wire) options.scale = plan_.scale;
  const Buffer buffer = storage_.travelling(layout_, bucket);
  buckets_[bucket].started = Clock::now();
  Work work = communicator_.all_reduce(buffer, buffer, wire ? ReduceOp::sum : plan_.op, options);
  work.on_done([end = &ended_[bucket]](std::error_code) {
    end->store(Clock::now().time_since_epoch().count(), std::memory_order_release);
    end->notify_one();  // needs the address alone, should the waiter be quicker
  });
  buckets_[bucket].work = std::move(work);
}

bool GradientBuckets::State::contributes_zero(std::size_t parameter) const noexcept {
  return plan_.silent || (marks_[parameter] == Mark::unused && !accumulated_[parameter]);
}

// Makes what travels of the gradients; nothing is to be done for most.
void GradientBuckets::State::contribute(std::size_t bucket) {
  const grad::BucketRange& range = layout_.buckets[bucket];
  if (storage_.has_wire(range.arena)) return contribute_wire(bucket);
  const DType type = layout_.arenas[range.arena].type;
  std::byte* const gradients = storage_.gradients(range.arena);
  if (!plan_.silent && !any_unused_)
    return grad::scale_values(gradients + range.offset, type, plan_.factor,
                              range.bytes / size_of(type));
  for (const std::size_t parameter : range.parameters) {
    const grad::GradientPiece piece = layout_.piece(bucket, parameter);
    if (piece.bytes == 0) continue;
    std::byte* const values = gradients + piece.offset;
    if (!contributes_zero(parameter)) {
      grad::scale_values(values, type, plan_.factor, piece.bytes / size_of(type));
      continue;
    }
    if (tells_unused())
      std::memcpy(storage_.saved(range.arena) + piece.offset, values, piece.bytes);
    std::memset(values, 0, piece.bytes);
  }
}

void GradientBuckets::State::contribute_wire(std::size_t bucket) {
  const grad::BucketRange& range = layout_.buckets[bucket];
  const Buffer wire = storage_.travelling(layout_, bucket);
  for (const std::size_t parameter : range.parameters) {
    const grad::GradientPiece piece = layout_.piece(bucket, parameter);
    const std::size_t count = piece.bytes / sizeof(float);
    if (count == 0) continue;
    std::byte* const to = static_cast<std::byte*>(wire.data) +
                          (piece.offset - range.offset) / sizeof(float) * size_of(wire.type);
    if (contributes_zero(parameter))
      std::memset(to, 0, count * size_of(wire.type));
    else
      grad::encode_wire(
          reinterpret_cast<const float*>(storage_.gradients(range.arena) + piece.offset),
          storage_.residual(range.arena, piece.offset), plan_.wire_factor, to, wire.type, count,
          unit_of(bucket, parameter), exponents_.empty() ? nullptr : &largest_[parameter]);
  }
}

}  // namespace rondo
