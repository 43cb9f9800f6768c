// SPDX-License-Identifier: Apache-2.0
//
// What a layer does before and after the collective of a pass.
#include <fmt/format.h>

#include <rondo/error.h>
#include <algorithm>
#include <cmath>
#include <utility>

#include "bn/fingerprint.h"
#include "bn/layer.h"

namespace rondo::bn {

namespace {

bool overlap_in_part(const void* a, const void* b, std::size_t bytes) noexcept {
  const auto first = reinterpret_cast<std::uintptr_t>(a),
             second = reinterpret_cast<std::uintptr_t>(b);
  return first != second && (first < second ? second - first : first - second) < bytes;
}

}  // namespace

void Layer::check_input(const Activations& x, const char* what) const {
  if (x.samples > 0 && (x.data == nullptr || x.spatial == 0))
    throw Error(Errc::invalid_argument,
                fmt::format("{}: {} has {} samples of {} positions, with data {}: neither the "
                            "positions nor data may be 0",
                            who(), what, x.samples, x.spatial, x.data));
  constexpr std::size_t most = std::size_t{1} << 53;  // counts are summed in f64
  if (x.samples > 0 && (x.samples > most / x.spatial || x.samples * x.spatial > most / channels_))
    throw Error(Errc::invalid_argument,
                fmt::format("{}: {} has more than 2^53 elements", who(), what));
}

void Layer::check_backward(const Activations& x, const Activations& dy) const {
  if (!has_forward_)
    throw Error(Errc::invalid_argument,
                fmt::format("{}: backward without a forward pass in training before it", who()));
  for (const auto& [which, given] : {std::pair("x", &x), std::pair("dy", &dy)}) {
    check_input(*given, which);
    if (given->samples != samples_ || (samples_ > 0 && given->spatial != spatial_))
      throw Error(
          Errc::invalid_argument,
          fmt::format("{}: {} has {} samples of {} positions, the forward pass had {} of {}", who(),
                      which, given->samples, given->spatial, samples_, spatial_));
  }
  if (fingerprint(x.data, bytes_of(x)) != x_fingerprint_)
    throw Error(
        Errc::invalid_argument,
        fmt::format("{}: x is not what the last forward pass was given{}", who(),
                    in_place_
                        ? ": that pass wrote its output over it; give forward another y where "
                          "backward follows"
                        : "; keep x unchanged until backward, which belongs to the last forward"));
}

void Layer::check_output(const Activations& in, const Activations& out, const char* what) const {
  check_input(out, what);
  if (out.samples != in.samples || (out.samples > 0 && out.spatial != in.spatial))
    throw Error(Errc::invalid_argument,
                fmt::format("{}: {} has {} samples of {} positions, the input has {} of {}", who(),
                            what, out.samples, out.spatial, in.samples, in.spatial));
  if (overlap_in_part(in.data, out.data, bytes_of(in)))
    throw Error(
        Errc::invalid_argument,
        fmt::format(
            "{}: {} overlaps the input in part: give it the same memory or memory of its own",
            who(), what));
}

void Layer::check_output(const Activations& out, Pass pass) const {
  check_output(x_, out, pass == Pass::forward ? "y" : "dx");
  if (pass == Pass::backward) check_output(dy_, out, "dx");
}

void Layer::begin_forward(const Activations& x) {
  x_ = x;
  samples_ = x.samples;
  spatial_ = x.spatial;
  x_fingerprint_ = fingerprint(x.data, bytes_of(x));
  has_forward_ = false;
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
  ++steps_;
}

void Layer::put_forward(std::span<double> sums) const noexcept {
  put_sums(local_, global_.point, sums.first(channels_), sums.last(channels_));
}

bool Layer::take_forward(std::span<const double> sums, double count) noexcept {
  if (count > 0) return take_sums(global_, count, sums.first(channels_), sums.last(channels_));
  global_.count = 0;
  return true;
}

std::size_t Layer::bytes_of(const Activations& x) const noexcept {
  return x.samples * x.spatial * channels_ * size_of(options_.type);
}

// Calls function(P{}), where P is the type of the parameters.
template <class Function>
void Layer::with_type(Function function) const {
  if (parameter_type_ == DType::f64)
    function(double{});
  else
    function(float{});
}

template <class P>
P* Layer::array(const Memory& memory, std::size_t number) const noexcept {
  return static_cast<P*>(memory.data()) + number * channels_;
}

template <class P>
Lines<P> Layer::lines() const noexcept {
  return {array<P>(lines_, 0), array<P>(lines_, 1), array<P>(lines_, 2), array<P>(lines_, 3),
          array<P>(lines_, 4)};
}

template <class P>
Affine<P> Layer::affine_parameters() const noexcept {
  if (!options_.affine) return {nullptr, nullptr};
  return {array<P>(parameters_, gamma_at), array<P>(parameters_, beta_at)};
}

Statistics Layer::statistics() const noexcept {
  return {global_.mean.data(), global_.mean_rest.data(), global_.m2.data(), global_.count};
}

void Layer::map_forward(const Activations& x, void* y, const Statistics& statistics) {
  with_type([&]<class P>(P) {
    const Lines<P> all = lines<P>();
    forward_lines(all, channels_, affine_parameters<P>(), statistics, options_.epsilon);
    passes_.forward(x, y, {all.center, all.scale, all.slope, all.shift});
  });
}

void Layer::end_forward(const Activations& y) {
  has_forward_ = true;
  in_place_ = x_.samples > 0 && y.data == x_.data;
  if (global_.count == 0) return;
  for (std::size_t c = 0; c < channels_; ++c) variance_[c] = global_.m2[c] / global_.count;
  ++batches;
  const double momentum = options_.momentum.value_or(1 / static_cast<double>(batches));
  with_type([&]<class P>(P) {
    update_running(array<P>(parameters_, running_mean_at),
                   array<P>(parameters_, running_variance_at), channels_, statistics(), momentum);
  });
  map_forward(x_, y.data, statistics());
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

void Layer::end_backward(const Activations& dx) {
  if (global_.count == 0) return;
  with_type([&]<class P>(P) {
    const Lines<P> all = lines<P>();
    backward_lines(all, channels_, affine_parameters<P>(), statistics(), options_.epsilon,
                   global_sums_.data(), local_sums_.data());
    if (options_.affine) {
      P *const beta = static_cast<P*>(beta_gradient_.data), *const gamma = static_cast<P*>(
                                                                gamma_gradient_.data);
      for (std::size_t c = 0; c < channels_; ++c) {
        beta[c] = static_cast<P>(static_cast<double>(beta[c]) + local_sums_[c]);
        gamma[c] = static_cast<P>(static_cast<double>(gamma[c]) + local_sums_[channels_ + c]);
      }
    }
    passes_.backward(x_, dy_.data, dx.data,
                     {all.center, all.scale, all.slope, all.shift, all.gradient_center});
  });
}

void Layer::evaluate(const Activations& x, const Activations& y) {
  check_input(x, "x");
  check_output(x, y, "y");
  shared_->note_evaluation(options_.name);
  if (x.samples == 0) return;
  if (options_.track_running) {
    evaluated_.count = 1;
    with_type([&]<class P>(P) {
      std::copy_n(array<P>(parameters_, running_mean_at), channels_, evaluated_.point.begin());
      std::copy_n(array<P>(parameters_, running_variance_at), channels_, evaluated_.m2.begin());
    });
  } else {
    passes_.moments(x, evaluated_, {});
  }
  map_forward(
      x, y.data,
      {evaluated_.point.data(), evaluated_.offset.data(), evaluated_.m2.data(), evaluated_.count});
}

}  // namespace rondo::bn
