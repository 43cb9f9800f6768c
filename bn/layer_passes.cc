// SPDX-License-Identifier: Apache-2.0
//
// What a layer computes. With N elements of a channel over all ranks, inv = 1 / sqrt(var + epsilon) and d = x - mean:
//   y     = gamma inv d + beta
//   dx    = gamma inv (dy - sum(dy) / N - d inv^2 sum(dy d) / N)
//   dbeta = sum(dy),  dgamma = inv sum(dy d)
// (Ioffe and Szegedy 2015, section 3). The center that x is taken from is the mean in the type of the computation; what that rounds away is
// part of the shift, so that a mean far larger than the deviation costs no digits.
#include <fmt/format.h>

#include <rondo/error.h>
#include <algorithm>
#include <cmath>
#include <utility>

#include "bn/layer.h"
#include "bn/values.h"

namespace rondo::bn {

namespace {

enum Coefficient : std::size_t { center, scale, slope, shift };

bool overlap_in_part(const void* a, const void* b, std::size_t bytes) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(a), second = reinterpret_cast<std::uintptr_t>(b);
  return first != second && (first < second ? second - first : first - second) < bytes;
}

}  // namespace

void Layer::check_input(const Activations& x, const char* what) const {
  if (x.samples > 0 && (x.data == nullptr || x.spatial == 0))
    throw Error(Errc::invalid_argument, fmt::format("batch norm {}: {} has {} samples of {} positions at {}",
                                                    title(), what, x.samples, x.spatial, x.data));
  constexpr std::size_t most = std::size_t{1} << 53;  // counts are summed in f64
  if (x.samples > 0 && (x.samples > most / x.spatial || x.samples * x.spatial > most / channels_))
    throw Error(Errc::invalid_argument,
                fmt::format("batch norm {}: {} has more than 2^53 elements", title(), what));
}

void Layer::check_backward(const Activations& x, const Activations& dy) const {
  if (!has_forward_)
    throw Error(Errc::invalid_argument,
                fmt::format("batch norm {}: backward without a forward pass in training before it", title()));
  for (const auto& [which, given] : {std::pair("x", &x), std::pair("dy", &dy)}) {
    check_input(*given, which);
    if (given->samples != samples_ || (samples_ > 0 && given->spatial != spatial_))
      throw Error(
          Errc::invalid_argument,
          fmt::format("batch norm {}: {} has {} samples of {} positions, the forward pass had {} of {}",
                      title(), which, given->samples, given->spatial, samples_, spatial_));
  }
}

void Layer::check_output(const Activations& in, const Activations& out, const char* what) const {
  check_input(out, what);
  if (out.samples != in.samples || (out.samples > 0 && out.spatial != in.spatial))
    throw Error(Errc::invalid_argument,
                fmt::format("batch norm {}: {} has {} samples of {} positions, the input has {} of {}",
                            title(), what, out.samples, out.spatial, in.samples, in.spatial));
  if (overlap_in_part(in.data, out.data, in.samples * in.spatial * channels_ * size_of(options_.type)))
    throw Error(
        Errc::invalid_argument,
        fmt::format("batch norm {}: {} overlaps the input in part; it must be the same memory or other",
                    title(), what));
}

void Layer::check_output(const Activations& out, Pass pass) const {
  check_output(x_, out, pass == Pass::forward ? "y" : "dx");
  if (pass == Pass::backward) check_output(dy_, out, "dx");
}

void Layer::begin_forward(const Activations& x) {
  x_ = x;
  samples_ = x.samples;
  spatial_ = x.spatial;
  ++steps_;
  has_forward_ = true;
  passes_.moments(x, local_);
}

void Layer::put_forward(std::span<double> sums) const noexcept {
  put_sums(local_, global_.mean, sums.first(channels_), sums.last(channels_));
}

bool Layer::take_forward(std::span<const double> sums, double count) noexcept {
  if (count > 0) return take_sums(global_, count, sums.first(channels_), sums.last(channels_));
  global_.count = 0;
  return true;
}

void Layer::set_forward_line(std::size_t c, double mean, double rest, double variance) noexcept {
  const double inverse = 1 / std::sqrt(variance + options_.epsilon);
  const double factor = value(gamma(), c, 1) * inverse;
  set(coefficient(center), c, mean);
  set(coefficient(scale), c, factor);
  const double rounded_away = (mean - value(coefficient(center), c, 0)) + rest;
  set(coefficient(shift), c, value(beta(), c, 0) - rounded_away * factor);
}

void Layer::end_forward(const Activations& y) {
  if (global_.count == 0) return;
  for (std::size_t c = 0; c < channels_; ++c) {
    variance_[c] = global_.variance(c);
    set_forward_line(c, global_.mean[c], global_.mean_rest[c], variance_[c]);
  }
  update_running();
  passes_.forward(x_, y.data, coefficients());
}

void Layer::update_running() noexcept {
  ++batches;
  const double momentum = options_.momentum.value_or(1 / static_cast<double>(batches));
  const Buffer means = running_mean(), variances = running_variance();
  for (std::size_t c = 0; c < channels_; ++c) {
    set(means, c, (1 - momentum) * value(means, c, 0) + momentum * global_.mean[c]);
    // Of a single element there is no unbiased variance.
    if (global_.count > 1)
      set(variances, c,
          (1 - momentum) * value(variances, c, 0) + momentum * (global_.m2[c] / (global_.count - 1)));
  }
}

void Layer::begin_backward(const Activations& x, const Activations& dy) {
  x_ = x;
  dy_ = dy;
  has_forward_ = false;
  const std::span sums(local_sums_);
  passes_.gradient_sums(x, dy.data, global_.mean, sums.first(channels_), sums.last(channels_));
}

void Layer::put_backward(std::span<double> sums) const noexcept {
  std::copy(local_sums_.begin(), local_sums_.end(), sums.begin());
}

void Layer::take_backward(std::span<const double> sums) noexcept {
  std::copy(sums.begin(), sums.end(), global_sums_.begin());
}

void Layer::set_backward_line(std::size_t c) noexcept {
  const double inverse = 1 / std::sqrt(variance_[c] + options_.epsilon);
  const double factor = value(gamma(), c, 1) * inverse, rest = global_.mean_rest[c];
  double &sum = global_sums_[c], &products = global_sums_[channels_ + c];
  double &local_sum = local_sums_[c], &local_products = local_sums_[channels_ + c];
  products -= rest * sum;
  local_products -= rest * local_sum;
  const double along = -factor * inverse * inverse * products / global_.count;
  set(coefficient(center), c, global_.mean[c]);
  set(coefficient(scale), c, factor);
  set(coefficient(slope), c, along);
  const double rounded_away = (global_.mean[c] - value(coefficient(center), c, 0)) + rest;
  set(coefficient(shift), c, -factor * sum / global_.count - along * rounded_away);
  products *= inverse;
  local_products *= inverse;
}

void Layer::end_backward(const Activations& dx) {
  if (global_.count == 0) return;
  for (std::size_t c = 0; c < channels_; ++c) {
    set_backward_line(c);
    if (!options_.affine) continue;
    set(beta_gradient_, c, value(beta_gradient_, c, 0) + local_sums_[c]);
    set(gamma_gradient_, c, value(gamma_gradient_, c, 0) + local_sums_[channels_ + c]);
  }
  passes_.backward(x_, dy_.data, dx.data, coefficients());
}

void Layer::evaluate(const Activations& x, const Activations& y) {
  check_input(x, "x");
  check_output(x, y, "y");
  shared_->note_evaluation(options_.name);
  if (x.samples == 0) return;
  if (!options_.track_running) passes_.moments(x, own_batch_);
  for (std::size_t c = 0; c < channels_; ++c) {
    if (options_.track_running)
      set_forward_line(c, value(running_mean(), c, 0), 0, value(running_variance(), c, 0));
    else
      set_forward_line(c, own_batch_.point[c], own_batch_.offset[c], own_batch_.m2[c] / own_batch_.count);
  }
  passes_.forward(x, y.data, coefficients());
}

Coefficients Layer::coefficients() const noexcept {
  return {coefficient(center).data, coefficient(scale).data, coefficient(slope).data,
          coefficient(shift).data};
}

}  // namespace rondo::bn
