// SPDX-License-Identifier: Apache-2.0
#include <rondo/gradients.h>

#include <cmath>

#include "grad/device/arithmetic.h"
#include "grad/state.h"
#include "grad/statistics.h"

namespace rondo {

GradientBuckets::GradientBuckets(Communicator& communicator, std::vector<Parameter> parameters,
                                 GradientOptions options)
    : state_(std::make_unique<State>(communicator, std::move(parameters), std::move(options))) {}
GradientBuckets::GradientBuckets(GradientBuckets&&) noexcept = default;
GradientBuckets::~GradientBuckets() = default;

std::size_t GradientBuckets::parameter_count() const noexcept {
  return state_->parameter_count();
}
Buffer GradientBuckets::gradient(std::size_t parameter) const {
  return state_->gradient(parameter);
}
std::uint64_t GradientBuckets::layout() const noexcept {
  return state_->layout_number();
}
void GradientBuckets::zero(OnStream on) {
  state_->zero(on.stream);
}
void GradientBuckets::begin_step(const StepOptions& options) {
  state_->begin_step(options);
}
void GradientBuckets::ready(std::size_t parameter, OnStream on) {
  state_->ready(parameter, nullptr, on.stream);
}
void GradientBuckets::ready(std::size_t parameter, const void* gradient, OnStream on) {
  state_->check_not_null(parameter, gradient);
  state_->ready(parameter, gradient, on.stream);
}
void GradientBuckets::finish(std::optional<OnStream> on) {
  state_->finish(on ? std::optional(on->stream) : std::nullopt);
}
void GradientBuckets::step_without_data() {
  begin_step({.weight = 0});
  finish();
}

void GradientBuckets::leave_step(std::string_view why) noexcept {
  state_->leave_step(why);
}

GradientBuckets::Accumulation::Accumulation(GradientBuckets& buckets)
    : state_(buckets.state_.get()) {
  state_->begin_accumulation();
}
GradientBuckets::Accumulation::~Accumulation() {
  state_->end_accumulation();
}

double GradientBuckets::norm(OnStream on) {
  return state_->norm("norm()", on.stream);
}
bool GradientBuckets::finite(OnStream on) {
  return std::isfinite(state_->norm("finite()", on.stream));
}
double GradientBuckets::clip_factor(double max_norm, OnStream on) {
  return grad::clip_factor_of(state_->norm("clip_factor()", on.stream), max_norm);
}
void GradientBuckets::clip(double max_norm, OnStream on) {
  state_->clip(max_norm, on.stream);
}
std::span<const BucketStatistics> GradientBuckets::statistics() const noexcept {
  return state_->statistics().buckets();
}
StepStatistics GradientBuckets::step_statistics() const noexcept {
  return state_->statistics().step();
}

}  // namespace rondo
