// SPDX-License-Identifier: Apache-2.0
//
// The passes of a layer on the processor: kernels take sums over this rank's batch, the exchange
// merges those of all ranks, and kernels finish each channel.
#include <algorithm>
#include <cmath>
#include <span>
#include <type_traits>
#include <vector>

#include "bn/layer/compute.h"
#include "bn/layer/passes.h"
#include "bn/statistics/exchange.h"
#include "bn/statistics/fingerprint.h"
#include "bn/statistics/moments.h"
#include "bn/statistics/values.h"

namespace rondo::layer {

namespace {

using statistics::Pass;
using statistics::read_values;
using statistics::write_values;

void fill(const Buffer& buffer, double value) {
  const std::vector<double> values(buffer.count, value);
  write_values(values, buffer);
}

class HostCompute final : public Compute {
 public:
  explicit HostCompute(Model& model);

  std::string take_stream(bool) override { return {}; }
  void set_stream(void*) noexcept override {}
  void set_threads(int threads) noexcept override;
  void begin_forward(PassRecord& pass, const Activations& x) override;
  void end_forward(PassRecord& pass, const Activations& x, void* y) override;
  void begin_backward(const PassRecord& pass, const Activations& x, const void* dy) override;
  void end_backward(const PassRecord& pass, const Activations& x, const void* dy, void* dx,
                    const BatchNormGradients& gradients) override;
  void backward_parameters(const PassRecord& pass, const Activations& x, const void* dy,
                           const BatchNormGradients& gradients) override;
  void evaluate(const Activations& x, void* y) override;
  void dissolve() noexcept override { exchange_.dissolve(); }
  std::string problem_of(const void*, std::size_t) const override { return {}; }
  Buffer point() noexcept override { return array(global_.point); }
  Buffer mean() noexcept override { return array(global_.mean); }
  Buffer variance() noexcept override { return array(variance_); }

 private:
  static Buffer array(std::vector<double>& values) noexcept {
    return {values.data(), values.size(), DType::f64};
  }
  void send_forward(PassRecord& pass, bool again);
  void wait();
  void merge(PassRecord& pass);
  void update_running_statistics();
  void read_gamma(PassRecord& pass) const;
  void take_local_sums(const PassRecord& pass, const Activations& x, const void* dy);
  void put_gradients(const PassRecord& pass, const BatchNormGradients& to);
  void map_forward(const PassRecord& pass, const Activations& x, void* y);
  // Writes the coefficients of all channels, which function(channel, in_f64) computes, and returns
  // where they are. The type of the passes is fixed outside of the loop.
  template <class Function>
  Coefficients put(Function function) noexcept;
  template <class P, class Function>
  void put_as(P* to, Function function) const noexcept;

  Model& model_;
  const std::size_t channels_;
  statistics::Exchange exchange_;
  Passes passes_;
  Memory arrays_;  // the layer's own
  Memory lines_;   // the coefficients of the pass under way, in the type of the passes
  statistics::LocalMoments local_;
  statistics::GlobalMoments global_;
  std::vector<double> variance_;
  std::vector<double> sums_;           // this rank's, of dy and of dy * (x - mean)
  std::vector<double> beta_, values_;  // values_: two arrays, for conversions
  PassRecord evaluation_;
};

int threads_of(const Model& model) {
  const int threads = model.options.threads;
  return threads > 0 ? threads : model.shared->threads_per_rank();
}

HostCompute::HostCompute(Model& model)
    : model_(model),
      channels_(model.channels),
      exchange_(*model.communicator, model.shared->local_calls(), channels_, -1),
      passes_(model.shared->pool(), threads_of(model), model.options.type, model.options.layout,
              channels_),
      arrays_(own_arrays * channels_ * size_of(model.parameter_type())),
      lines_(coefficient_count * channels_ * size_of(model.parameter_type())),
      local_(channels_),
      global_(channels_),
      variance_(channels_),
      sums_(2 * channels_),
      beta_(channels_),
      values_(2 * channels_),
      evaluation_(channels_) {
  bind_own_arrays(model, static_cast<std::byte*>(arrays_.data()), -1);
  fill(model.buffers.gamma, 1);
  fill(model.buffers.running_variance, 1);
}

void HostCompute::set_threads(int) noexcept {
  if (model_.shared != nullptr) passes_.set_threads(threads_of(model_));
}

void HostCompute::send_forward(PassRecord& pass, bool again) {
  statistics::put_sums(local_, global_.point, exchange_.sums());
  pass.history = statistics::hash_of(global_.point);
  exchange_.send(model_.position(Pass::forward, pass.step, again), local_.count, pass.history);
}

void HostCompute::wait() {
  exchange_.wait();
  model_.shared->late_check().check(*model_.communicator);
  exchange_.check();
}

void HostCompute::begin_forward(PassRecord& pass, const Activations& x) {
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
  send_forward(pass, false);
}

// All ranks see the same sums, so they repeat them together.
void HostCompute::merge(PassRecord& pass) {
  for (int round = 1;; ++round) {
    wait();
    model_.count = global_.count = exchange_.count();
    if (global_.count == 0) return;
    if (statistics::take_sums(global_, global_.count, exchange_.sums()) || round == most_rounds)
      break;
    send_forward(pass, true);
  }
  pass.history = statistics::hash_of(global_.point);
}

void HostCompute::end_forward(PassRecord& pass, const Activations& x, void* y) {
  merge(pass);
  pass.count = global_.count;
  if (pass.count == 0) return;
  std::copy(global_.mean.begin(), global_.mean.end(), pass.mean.begin());
  std::copy(global_.rest.begin(), global_.rest.end(), pass.rest.begin());
  std::copy(global_.m2.begin(), global_.m2.end(), pass.m2.begin());
  for (std::size_t c = 0; c < channels_; ++c) variance_[c] = global_.variance(c);
  ++model_.batches;
  update_running_statistics();
  read_gamma(pass);
  map_forward(pass, x, y);
}

void HostCompute::update_running_statistics() {
  const std::span means = std::span(values_).first(channels_),
                  variances = std::span(values_).last(channels_);
  read_values(model_.buffers.running_mean, means);
  read_values(model_.buffers.running_variance, variances);
  const double momentum = model_.momentum();
  for (std::size_t c = 0; c < channels_; ++c) {
    means[c] = statistics::next_running_mean(means[c], global_.mean[c], momentum);
    variances[c] =
        statistics::next_running_variance(variances[c], global_.m2[c], global_.count, momentum);
  }
  write_values(means, model_.buffers.running_mean);
  write_values(variances, model_.buffers.running_variance);
}

void HostCompute::read_gamma(PassRecord& pass) const {
  if (model_.has_gamma())
    read_values(model_.buffers.gamma, pass.gamma);
  else
    std::fill(pass.gamma.begin(), pass.gamma.end(), 1.0);
}

template <class P, class Function>
void HostCompute::put_as(P* to, Function function) const noexcept {
  for (std::size_t c = 0; c < channels_; ++c) {
    const ChannelCoefficients all = function(c, std::is_same_v<P, double>);
    to[c] = static_cast<P>(all.center);
    to[channels_ + c] = static_cast<P>(all.scale);
    to[2 * channels_ + c] = static_cast<P>(all.slope);
    to[3 * channels_ + c] = static_cast<P>(all.shift);
    to[4 * channels_ + c] = static_cast<P>(all.gradient_center);
  }
}

template <class Function>
Coefficients HostCompute::put(Function function) noexcept {
  const bool in_f64 = model_.parameter_type() == DType::f64;
  if (in_f64)
    put_as(static_cast<double*>(lines_.data()), function);
  else
    put_as(static_cast<float*>(lines_.data()), function);
  const auto* const first = static_cast<const std::byte*>(lines_.data());
  const std::size_t each = channels_ * size_of(model_.parameter_type());
  return {first, first + each, first + 2 * each, first + 3 * each, first + 4 * each};
}

void HostCompute::map_forward(const PassRecord& pass, const Activations& x, void* y) {
  if (model_.has_beta()) read_values(model_.buffers.beta, beta_);
  const double epsilon = model_.options.epsilon;
  passes_.forward(x, y, put([&](std::size_t c, bool in_f64) {
                    return forward_coefficients(pass.at(c), pass.gamma[c], beta_[c], epsilon,
                                                in_f64);
                  }));
}

void HostCompute::take_local_sums(const PassRecord& pass, const Activations& x, const void* dy) {
  const std::span sums(sums_);
  passes_.gradient_sums(x, dy, pass.mean, sums.first(channels_), sums.last(channels_));
}

void HostCompute::begin_backward(const PassRecord& pass, const Activations& x, const void* dy) {
  take_local_sums(pass, x, dy);
  std::copy(sums_.begin(), sums_.end(), exchange_.sums().begin());
  exchange_.send(model_.position(Pass::backward, pass.step),
                 static_cast<double>(pass.samples * pass.spatial), pass.history);
}

void HostCompute::end_backward(const PassRecord& pass, const Activations& x, const void* dy,
                               void* dx, const BatchNormGradients& gradients) {
  wait();
  if (pass.count > 0) {
    const std::span<const double> all = exchange_.sums();
    const double epsilon = model_.options.epsilon;
    const Coefficients lines = put([&](std::size_t c, bool in_f64) {
      const ChannelStatistics of = pass.at(c);
      return backward_coefficients(of, pass.gamma[c], all[c],
                                   gamma_gradient_of(of, all[c], all[channels_ + c], epsilon),
                                   epsilon, in_f64);
    });
    passes_.backward(x, dy, dx, lines);
  }
  put_gradients(pass, gradients);
}

void HostCompute::backward_parameters(const PassRecord& pass, const Activations& x, const void* dy,
                                      const BatchNormGradients& gradients) {
  take_local_sums(pass, x, dy);
  put_gradients(pass, gradients);
}

void HostCompute::put_gradients(const PassRecord& pass, const BatchNormGradients& to) {
  // Where no rank has samples, the sums are 0 and there are no statistics.
  const std::span of_beta = std::span(sums_).first(channels_),
                  of_gamma = std::span(sums_).last(channels_),
                  now = std::span(values_).first(channels_);
  if (pass.count == 0) std::ranges::fill(sums_, 0);  // a used record still has a mean
  if (pass.count > 0)
    for (std::size_t c = 0; c < channels_; ++c)
      of_gamma[c] = gamma_gradient_of(pass.at(c), of_beta[c], of_gamma[c], model_.options.epsilon);
  const auto put = [&](const Buffer& buffer, std::span<double> gradient) {
    if (buffer.count == 0) return;
    if (to.add) {
      read_values(buffer, now);
      for (std::size_t c = 0; c < channels_; ++c) gradient[c] += now[c];
    }
    write_values(gradient, buffer);
  };
  put(to.beta, of_beta);
  put(to.gamma, of_gamma);
}

void HostCompute::evaluate(const Activations& x, void* y) {
  if (x.samples == 0) return;
  evaluation_.count = 1;
  read_values(model_.buffers.running_mean, evaluation_.mean);
  std::fill(evaluation_.rest.begin(), evaluation_.rest.end(), 0.0);
  read_values(model_.buffers.running_variance, evaluation_.m2);
  read_gamma(evaluation_);
  map_forward(evaluation_, x, y);
}

}  // namespace

std::unique_ptr<Compute> compute_on_host(Model& model) {
  return std::make_unique<HostCompute>(model);
}

}  // namespace rondo::layer
