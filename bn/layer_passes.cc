// SPDX-License-Identifier: Apache-2.0
//
// What a layer does before and after the collective of a pass.
#include <algorithm>
#include <cmath>
#include <functional>

#include "bn/fingerprint.h"
#include "bn/layer.h"
#include "bn/values.h"

namespace rondo::bn {

void Layer::note_input(PassRecord& pass, const Activations& x) const noexcept {
  pass.ready = false;
  pass.samples = x.samples;
  pass.spatial = x.spatial;
  pass.layout = layout_of(x);
  if (gpu_ == nullptr) pass.x_fingerprint = fingerprint(x.data, bytes_of(x));
}

void Layer::begin_forward(const Activations& x) {
  if (last_ == nullptr) last_ = records_->take();
  current_ = last_.get();
  x_ = x;
  note_input(*last_, x);
  last_->source = Source::all_ranks;
  if (gpu_ != nullptr) return begin_forward_on_gpu();
  // The sums of a step need only the points of the step before. If all points are 0, there was no
  // such step, or it makes no difference. A program may have written infinity or NaN into the
  // points (SyncBatchNorm::point).
  bool known = false;
  for (double& point : global_.point) {
    if (!std::isfinite(point)) point = 0;
    known |= point != 0;
  }
  passes_.moments(x, local_,
                  known ? std::span<const double>(global_.point) : std::span<const double>());
  last_->step = ++steps_;
  last_->history = hash_of(global_.point);
}

void Layer::put_forward(std::span<double> sums) const noexcept {
  put_sums(local_, global_.point, sums.first(channels_), sums.last(channels_));
}

bool Layer::take_forward(std::span<const double> sums, double count) noexcept {
  global_.count = count;
  if (count == 0) return true;
  const bool enough = take_sums(global_, count, sums.first(channels_), sums.last(channels_));
  last_->history = hash_of(global_.point);
  return enough;
}

void Layer::end_forward(const Activations& y, const BatchNormFusion& fusion) {
  last_->ready = true;
  last_->in_place = x_.samples > 0 && y.data == x_.data;
  last_->relu = fusion.relu;
  if (gpu_ != nullptr) return end_forward_on_gpu(y, fusion);
  last_->count = global_.count;
  if (global_.count == 0) return;
  std::copy(global_.mean.begin(), global_.mean.end(), last_->mean.begin());
  std::copy(global_.mean_rest.begin(), global_.mean_rest.end(), last_->rest.begin());
  std::copy(global_.m2.begin(), global_.m2.end(), last_->m2.begin());
  for (std::size_t c = 0; c < channels_; ++c) variance_[c] = global_.m2[c] / global_.count;
  ++batches;
  update_running_statistics();
  read_gamma(*last_);
  map_forward(*last_, x_, y.data);
}

void Layer::update_running_statistics() {
  const std::span means = std::span(values_).first(channels_),
                  variances = std::span(values_).last(channels_);
  read_values(running_mean_, means);
  read_values(running_variance_, variances);
  update_running(means.data(), variances.data(), channels_, last_->statistics(), momentum());
  write_values(means, running_mean_);
  write_values(variances, running_variance_);
}

void Layer::read_gamma(PassRecord& pass) const {
  if (has_gamma())
    read_values(gamma_, pass.gamma);
  else
    std::fill(pass.gamma.begin(), pass.gamma.end(), 1.0);
}

void Layer::begin_backward(const PassRecord& pass, const Activations& x, const Activations& dy,
                           const BatchNormFusion& fusion) {
  current_ = &pass;
  x_ = x;
  dy_ = dy;
  fusion_ = fusion;
  if (gpu_ == nullptr) take_local_sums(pass, x, dy);
}

void Layer::take_local_sums(const PassRecord& pass, const Activations& x, const Activations& dy) {
  const std::span sums(local_sums_);
  passes_.gradient_sums(x, dy.data, pass.mean, sums.first(channels_), sums.last(channels_));
}

void Layer::put_backward(std::span<double> sums) const noexcept {
  std::copy(local_sums_.begin(), local_sums_.end(), sums.begin());
}

void Layer::take_backward(std::span<const double> sums) noexcept {
  std::copy(sums.begin(), sums.end(), global_sums_.begin());
}

void Layer::end_backward(const Activations& dx, const BatchNormGradients& gradients) {
  const PassRecord& pass = *current_;
  if (gpu_ != nullptr) return end_backward_on_gpu(dx, gradients);
  if (pass.count > 0) {
    finish_sums(global_sums_.data(), channels_, pass.statistics(), options_.epsilon);
    map_backward(pass, x_, dy_, dx.data, global_sums_);
  }
  put_gradients(pass, gradients);
}

void Layer::put_gradients(const PassRecord& pass, const BatchNormGradients& to) {
  // Where no rank has samples, the sums are 0 and there are no statistics.
  if (pass.count > 0)
    finish_sums(local_sums_.data(), channels_, pass.statistics(), options_.epsilon);
  const auto put = [&](const Buffer& buffer, std::span<const double> gradient) {
    if (buffer.count == 0) return;
    const std::span sum = std::span(values_).first(channels_);
    if (to.add)
      read_values(buffer, sum);
    else
      std::fill(sum.begin(), sum.end(), 0.0);
    std::transform(sum.begin(), sum.end(), gradient.begin(), sum.begin(), std::plus{});
    write_values(sum, buffer);
  };
  put(to.beta, std::span(local_sums_).first(channels_));
  put(to.gamma, std::span(local_sums_).last(channels_));
}

std::size_t Layer::bytes_of(const Activations& x) const noexcept {
  return x.samples * x.spatial * channels_ * size_of(options_.type);
}

// Calls function(P{}), where P is the type of the computation.
template <class Function>
void Layer::with_type(Function function) const {
  if (parameter_type_ == DType::f64)
    function(double{});
  else
    function(float{});
}

template <class P>
Lines<P> Layer::lines() const noexcept {
  P* const first = static_cast<P*>(lines_.data());
  return {first, first + channels_, first + 2 * channels_, first + 3 * channels_,
          first + 4 * channels_};
}

void Layer::map_forward(const PassRecord& pass, const Activations& x, void* y) {
  if (has_beta()) read_values(beta_, beta_values_);
  with_type([&]<class P>(P) {
    const Lines<P> all = lines<P>();
    forward_lines(all, channels_, pass.gamma.data(), beta_values_.data(), pass.statistics(),
                  options_.epsilon);
    passes_.forward(x, y, {all.center, all.scale, all.slope, all.shift});
  });
}

void Layer::map_backward(const PassRecord& pass, const Activations& x, const Activations& dy,
                         void* dx, std::span<const double> gradients) {
  with_type([&]<class P>(P) {
    const Lines<P> all = lines<P>();
    if (pass.source == Source::running) {
      fixed_backward_lines(all, channels_, pass.gamma.data(), pass.statistics(), options_.epsilon);
      passes_.forward(dy, dx, {all.center, all.scale, all.slope, all.shift});
      return;
    }
    backward_lines(all, channels_, pass.gamma.data(), pass.statistics(), options_.epsilon,
                   gradients.data());
    passes_.backward(x, dy.data, dx,
                     {all.center, all.scale, all.slope, all.shift, all.gradient_center});
  });
}

}  // namespace rondo::bn
