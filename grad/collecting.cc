// SPDX-License-Identifier: Apache-2.0
#include "grad/collecting.h"

#include <fmt/format.h>

#include <algorithm>

namespace rondo::grad {

Collector::Collector(Setup& setup, const Failure& failure)
    : setup_(setup),
      failure_(failure),
      buckets_(setup.layout.buckets.size()),
      marks_(setup.parameters.size()),
      claimed_(setup.parameters.size()),
      accumulated_(setup.parameters.size()) {
  observed_.reserve(setup.parameters.size());
}

Phase Collector::phase() const {
  const std::lock_guard lock(mutex_);
  return phase_;
}

// The marks are free for this between steps: begin_step() sets them anew.
void Collector::check_unused(std::span<const std::size_t> unused) {
  const std::lock_guard lock(mutex_);
  std::fill(marks_.begin(), marks_.end(), Mark::waiting);
  for (const std::size_t parameter : unused) {
    setup_.check_index("unused", parameter);
    if (marks_[parameter] == Mark::unused)
      setup_.refuse(fmt::format("begin_step(): the list of unused parameters names '{}' twice",
                                setup_.parameters[parameter].name));
    marks_[parameter] = Mark::unused;
  }
}

void Collector::zero(void* stream) {
  const std::lock_guard lock(mutex_);
  if (phase_ == Phase::finishing || (phase_ == Phase::synchronized && (launching_ || next_ != 0)))
    setup_.refuse(fmt::format(
        "zero() in step {} after buckets have started: call it before the backward pass", step_));
  setup_.passes->zero(stream);
  std::fill(accumulated_.begin(), accumulated_.end(), false);
}

void Collector::begin_step(const StepOptions& options) {
  const std::lock_guard lock(mutex_);
  ++step_;
  has_weight_ = options.weight > 0;
  begun_ = Clock::now();
  std::fill(marks_.begin(), marks_.end(), Mark::waiting);
  std::fill(claimed_.begin(), claimed_.end(), false);
  observed_.clear();
  next_ = 0;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket)
    buckets_[bucket].waiting = setup_.layout.buckets[bucket].parameters.size();
  any_unused_ = !options.unused.empty();
  for (const std::size_t parameter : options.unused) mark(parameter, Mark::unused);
}

void Collector::open(Phase phase) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
}

void Collector::mark(std::size_t parameter, Mark how) {
  marks_[parameter] = how;
  for (const std::size_t bucket : setup_.layout.places[parameter].buckets)
    if (--buckets_[bucket].waiting == 0) buckets_[bucket].complete = Clock::now();
}

void Collector::check_awaited(std::size_t parameter, bool claimed) const {
  failure_.check();
  const std::string& name = setup_.parameters[parameter].name;
  if (phase_ == Phase::idle)
    setup_.refuse(fmt::format(
        "parameter '{}' became ready outside of a step: call begin_step() first", name));
  if (marks_[parameter] == Mark::unused)
    throw Mistake{fmt::format(
        "parameter '{}' became ready in step {} although it counts as unused there: do not name it "
        "as unused, and call ready() before finish()",
        name, step_)};
  if (marks_[parameter] == Mark::ready || claimed_[parameter] != claimed)
    throw Mistake{fmt::format(
        "parameter '{}' became ready twice in step {}: call ready() once, after the last addition "
        "to its gradient",
        name, step_)};
}

void Collector::claim(std::size_t parameter) {
  const std::lock_guard lock(mutex_);
  check_awaited(parameter, false);
  claimed_[parameter] = true;
}

std::optional<std::size_t> Collector::ready(std::size_t parameter, bool claimed,
                                            const Work& header) {
  const std::lock_guard lock(mutex_);
  check_awaited(parameter, claimed);
  mark(parameter, Mark::ready);
  observed_.push_back(parameter);
  if (phase_ == Phase::local && has_weight_) accumulated_[parameter] = true;
  if (phase_ != Phase::synchronized) return std::nullopt;
  return role_if_free(header);
}

std::optional<std::size_t> Collector::role_if_free(const Work& header) {
  if (launching_ || !has_next() || !header.done()) return std::nullopt;
  launching_ = true;
  return next_;
}

std::optional<std::size_t> Collector::take_role(const Work& header) {
  const std::lock_guard lock(mutex_);
  return role_if_free(header);
}

std::optional<std::size_t> Collector::after_launch(bool launched) {
  const std::lock_guard lock(mutex_);
  if (launched) ++next_;
  if (launched && has_next()) return next_;
  launching_ = false;
  role_free_.notify_all();
  return std::nullopt;
}

void Collector::close(bool accumulating) {
  std::unique_lock lock(mutex_);
  role_free_.wait(lock, [this] { return !launching_; });
  failure_.check();
  if (phase_ == Phase::idle) setup_.refuse("finish() outside of a step: call begin_step() first");
  if (phase_ == Phase::local && !accumulating)
    setup_.refuse(fmt::format(
        "finish(): the Accumulation of step {} was destroyed too early: keep it until finish() has "
        "returned",
        step_));
  check_missing();
  for (std::size_t parameter = 0; parameter < marks_.size(); ++parameter) {
    if (marks_[parameter] != Mark::waiting) continue;
    mark(parameter, Mark::unused);
    any_unused_ = true;
  }
  if (phase_ == Phase::synchronized) phase_ = Phase::finishing;
}

void Collector::check_missing() const {
  const auto missing = std::count(marks_.begin(), marks_.end(), Mark::waiting);
  if (missing == 0 || setup_.options.find_unused || !has_weight_) return;
  const auto first = std::find(marks_.begin(), marks_.end(), Mark::waiting) - marks_.begin();
  const std::string others = missing == 1 ? "" : fmt::format(" (and {} more)", missing - 1);
  throw Mistake{fmt::format(
      "parameter '{}'{} never became ready in step {}: mark it unused, or set find_unused",
      setup_.parameters[static_cast<std::size_t>(first)].name, others, step_)};
}

void Collector::end_step() {
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::local) std::fill(accumulated_.begin(), accumulated_.end(), false);
  phase_ = Phase::idle;
}

void Collector::put_given(std::span<std::uint64_t> bits) const {
  const std::lock_guard lock(mutex_);
  std::fill(bits.begin(), bits.end(), 0);
  if (!has_weight_) return;
  for (std::size_t parameter = 0; parameter < marks_.size(); ++parameter)
    if (!gives_nothing(parameter)) bits[parameter / 64] |= std::uint64_t{1} << parameter % 64;
}

}  // namespace rondo::grad
