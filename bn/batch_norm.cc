// SPDX-License-Identifier: Apache-2.0
#include <rondo/batch_norm.h>

#include <fmt/format.h>

#include <rondo/error.h>
#include <algorithm>
#include <array>
#include <utility>

#include "base/default_floats.h"
#include "bn/layer.h"

namespace rondo {

using bn::Exchange;
using bn::Layer;
using bn::Pass;
using bn::PassRecord;
using bn::Source;

class SyncBatchNorm::State final : public Layer {
 public:
  using Layer::Layer;

  static std::span<Layer* const> of(std::span<SyncBatchNorm* const> layers) {
    if (layers.empty() || layers.front() == nullptr)
      throw Error(Errc::invalid_argument, "batch norm: no layers");
    layers.front()->state_->check_alive();
    std::vector<Layer*>& list = layers.front()->state_->shared().list;
    list.clear();
    for (SyncBatchNorm* layer : layers) {
      if (layer == nullptr)
        throw Error(Errc::invalid_argument, "batch norm: a layer of the list is null");
      list.push_back(layer->state_.get());
    }
    return list;
  }
};

namespace {

std::string_view word_of(Pass pass) {
  return pass == Pass::forward ? "forward" : "backward";
}

[[noreturn]] void refuse(const Layer& layer, std::string_view why) {
  throw Error(Errc::invalid_argument, fmt::format("{}: {}", layer.who(), why));
}

// Checks the list of layers of one call, as far as this does not depend on the pass.
void check_list(std::span<Layer* const> layers, std::initializer_list<std::size_t> sizes) {
  for (const std::size_t size : sizes)
    if (size != layers.size())
      throw Error(Errc::invalid_argument,
                  fmt::format("batch norm: there are {} layers, but activations for {}",
                              layers.size(), size));
  for (Layer* layer : layers) {
    layer->check_alive();
    layer->take_stream();
    if (&layer->communicator() != &layers.front()->communicator())
      refuse(*layer,
             fmt::format("its communicator is not that of {}: layers of one call must share one",
                         layers.front()->title()));
    const bn::GpuLayer *const gpu = layer->gpu(), *const first = layers.front()->gpu();
    if ((gpu == nullptr) != (first == nullptr) ||
        (gpu != nullptr && (&gpu->gpu() != &first->gpu() || gpu->stream() != first->stream())))
      refuse(*layer,
             fmt::format("its GPU or stream is not that of {}: layers of one call share them",
                         layers.front()->title()));
  }
  if (layers.front()->gpu() != nullptr) layers.front()->check_stream();
}

void check_free(std::span<Layer* const> layers, Pass pass) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i]->exchange() != nullptr)
      refuse(*layers[i],
             fmt::format("begin_{0} before end_{1}: its {1} pass has begun and must end first",
                         word_of(pass), word_of(layers[i]->exchange()->pass())));
    if (std::find(layers.begin(), layers.begin() + static_cast<std::ptrdiff_t>(i), layers[i]) !=
        layers.begin() + static_cast<std::ptrdiff_t>(i))
      refuse(*layers[i], "it appears twice in the list of layers");
  }
}

Exchange& under_way(std::span<Layer* const> layers, Pass pass) {
  for (const Layer* layer : layers) {
    const Exchange* const exchange = layer->exchange();
    if (exchange == nullptr || exchange->pass() != pass)
      refuse(*layer, fmt::format("end_{0} without begin_{0}", word_of(pass)));
    if (!std::equal(exchange->layers().begin(), exchange->layers().end(), layers.begin(),
                    layers.end()))
      refuse(*layer, fmt::format("end_{0} with other layers, or another order, than begin_{0}",
                                 word_of(pass)));
  }
  return *layers.front()->exchange();
}

void begin_forward_of(std::span<Layer* const> layers, std::span<const Activations> xs) {
  const base::DefaultFloats floats;
  check_list(layers, {xs.size()});
  check_free(layers, Pass::forward);
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i]->check_input(xs[i], "x");
  for (std::size_t i = 0; i < layers.size(); ++i) layers[i]->begin_forward(xs[i]);
  layers.front()->own_exchange().start(layers, Pass::forward);
}

void begin_backward_of(std::span<Layer* const> layers, std::span<const Activations> xs,
                       std::span<const Activations> dys, const BatchNormFusion& fusion) {
  const base::DefaultFloats floats;
  check_list(layers, {xs.size(), dys.size()});
  check_free(layers, Pass::backward);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i]->check_backward(layers[i]->last(), xs[i], dys[i]);
    layers[i]->check_backward_fusion(layers[i]->last(), xs[i], dys[i], fusion);
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i]->begin_backward(layers[i]->last(), xs[i], dys[i], fusion);
    layers[i]->forget_last();
  }
  layers.front()->own_exchange().start(layers, Pass::backward);
}

// fusion: of a forward pass; that of a backward pass came at its begin.
void end_of(std::span<Layer* const> layers, std::span<const Activations> outs, Pass pass,
            const BatchNormFusion& fusion = {}) {
  const base::DefaultFloats floats;
  check_list(layers, {outs.size()});
  Exchange& exchange = under_way(layers, pass);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i]->check_output(outs[i], pass);
    layers[i]->check_forward_fusion(fusion);
    layers[i]->check_fused_output(outs[i], pass == Pass::forward ? fusion : layers[i]->fusion(),
                                  pass);
  }
  exchange.finish();
  layers.front()->shared().local_calls().clear();
  // The first layer has the memory of the collective, so its work on a GPU comes last.
  for (std::size_t i = layers.size(); i-- > 0;) {
    if (pass == Pass::forward)
      layers[i]->end_forward(outs[i], fusion);
    else
      layers[i]->end_backward(outs[i], layers[i]->gradients());
  }
}

// The backward pass of one pass object. dx: null if it is not wanted.
void backward_of(Layer& layer, const BatchNormPass& object, const Activations& x,
                 const Activations& dy, const Activations* dx, const BatchNormGradients& gradients,
                 const BatchNormFusion& fusion) {
  const base::DefaultFloats floats;
  const std::array<Layer*, 1> list{&layer};
  check_list(list, {1});
  check_free(list, Pass::backward);
  const PassRecord& pass = layer.record_of(object);
  layer.check_backward(pass, x, dy);
  if (dx != nullptr) {
    layer.check_output(x, *dx, "dx");
    layer.check_output(dy, *dx, "dx");
  }
  layer.check_backward_fusion(pass, x, dy, fusion);
  if (dx != nullptr) layer.check_fused_output(*dx, fusion, Pass::backward);
  layer.check_gradients(gradients);
  if (dx == nullptr || pass.source != Source::all_ranks) {
    layer.backward_alone(pass, x, dy, dx, gradients, fusion);
    return;
  }
  layer.begin_backward(pass, x, dy, fusion);
  layer.own_exchange().start(list, Pass::backward);
  layer.own_exchange().finish();
  layer.shared().local_calls().clear();
  layer.end_backward(*dx, gradients);
}

}  // namespace

SyncBatchNorm::SyncBatchNorm(Communicator& communicator, std::size_t channels,
                             BatchNormOptions options)
    : state_(std::make_unique<State>(communicator, channels, std::move(options))) {}
SyncBatchNorm::SyncBatchNorm(SyncBatchNorm&&) noexcept = default;
SyncBatchNorm::~SyncBatchNorm() = default;

std::size_t SyncBatchNorm::channels() const noexcept {
  return state_->channels();
}
const BatchNormOptions& SyncBatchNorm::options() const noexcept {
  return state_->options();
}
Buffer SyncBatchNorm::gamma() noexcept {
  return state_->gamma();
}
Buffer SyncBatchNorm::beta() noexcept {
  return state_->beta();
}
Buffer SyncBatchNorm::gamma_gradient() noexcept {
  return state_->gradients().gamma;
}
Buffer SyncBatchNorm::beta_gradient() noexcept {
  return state_->gradients().beta;
}
void SyncBatchNorm::bind_parameters(Buffer gamma, Buffer beta) {
  state_->bind_parameters(gamma, beta);
}
void SyncBatchNorm::bind_statistics(Buffer running_mean, Buffer running_variance) {
  state_->bind_statistics(running_mean, running_variance);
}
void SyncBatchNorm::set_momentum(std::optional<double> momentum) {
  state_->set_momentum(momentum);
}
void SyncBatchNorm::set_threads(int threads) {
  state_->set_threads(threads);
}
void SyncBatchNorm::set_deadline(std::chrono::milliseconds deadline) {
  state_->set_deadline(deadline);
}
void SyncBatchNorm::bind_gradients(Buffer gamma_gradient, Buffer beta_gradient) {
  state_->bind_gradients(gamma_gradient, beta_gradient);
}
Buffer SyncBatchNorm::running_mean() noexcept {
  return state_->running_mean();
}
Buffer SyncBatchNorm::running_variance() noexcept {
  return state_->running_variance();
}
std::uint64_t SyncBatchNorm::batches() const noexcept {
  return state_->batches;
}
void SyncBatchNorm::set_batches(std::uint64_t batches) noexcept {
  state_->set_batches(batches);
}
std::span<const double> SyncBatchNorm::gamma_gradient_sum() const noexcept {
  return state_->gamma_gradient_sum();
}
std::span<const double> SyncBatchNorm::beta_gradient_sum() const noexcept {
  return state_->beta_gradient_sum();
}
std::span<const double> SyncBatchNorm::mean() const noexcept {
  return state_->moments().mean;
}
std::span<const double> SyncBatchNorm::variance() const noexcept {
  return state_->variance();
}
std::uint64_t SyncBatchNorm::count() const noexcept {
  return static_cast<std::uint64_t>(state_->moments().count);
}

void SyncBatchNorm::set_stream(void* stream) noexcept {
  state_->set_stream(stream);
}
Buffer SyncBatchNorm::mean_buffer() noexcept {
  return state_->mean_buffer();
}
Buffer SyncBatchNorm::variance_buffer() noexcept {
  return state_->variance_buffer();
}
Buffer SyncBatchNorm::gamma_gradient_sum_buffer() noexcept {
  return state_->gamma_gradient_sum_buffer();
}
Buffer SyncBatchNorm::beta_gradient_sum_buffer() noexcept {
  return state_->beta_gradient_sum_buffer();
}
Buffer SyncBatchNorm::point() noexcept {
  return state_->point();
}

std::vector<Parameter> SyncBatchNorm::parameters() {
  std::vector<Parameter> result;
  const auto add = [&](const char* suffix, const Buffer& buffer) {
    if (buffer.count > 0)
      result.push_back({fmt::format("{}.{}", options().name, suffix),
                        {buffer.count},
                        buffer.type,
                        buffer.device,
                        buffer.data});
  };
  add("weight", gamma());
  add("bias", beta());
  add("running_mean", running_mean());
  add("running_var", running_variance());
  add("point", point());
  return result;
}

void SyncBatchNorm::forward(const Activations& x, const Activations& y,
                            const BatchNormFusion& fusion) {
  state_->check_output(x, y, "y");
  state_->check_forward_fusion(x, fusion);
  state_->check_fused_output(y, fusion, Pass::forward);
  begin_forward(x);
  end_forward(y, fusion);
}
void SyncBatchNorm::begin_forward(const Activations& x) {
  begin_forward_of(std::array<Layer*, 1>{state_.get()}, std::span(&x, 1));
}
void SyncBatchNorm::end_forward(const Activations& y, const BatchNormFusion& fusion) {
  end_of(std::array<Layer*, 1>{state_.get()}, std::span(&y, 1), Pass::forward, fusion);
}
void SyncBatchNorm::backward(const Activations& x, const Activations& dy, const Activations& dx,
                             const BatchNormFusion& fusion) {
  state_->check_output(x, dx, "dx");
  state_->check_output(dy, dx, "dx");
  state_->check_fused_output(dx, fusion, Pass::backward);
  begin_backward(x, dy, fusion);
  end_backward(dx);
}
void SyncBatchNorm::begin_backward(const Activations& x, const Activations& dy,
                                   const BatchNormFusion& fusion) {
  begin_backward_of(std::array<Layer*, 1>{state_.get()}, std::span(&x, 1), std::span(&dy, 1),
                    fusion);
}
void SyncBatchNorm::end_backward(const Activations& dx) {
  end_of(std::array<Layer*, 1>{state_.get()}, std::span(&dx, 1), Pass::backward);
}
void SyncBatchNorm::evaluate(const Activations& x, const Activations& y,
                             const BatchNormFusion& fusion) const {
  state_->check_alive();
  state_->evaluate(x, y, fusion);
}

BatchNormPass SyncBatchNorm::take_pass() {
  return state_->take_pass();
}
BatchNormPass SyncBatchNorm::evaluate_pass(const Activations& x, const Activations& y,
                                           const BatchNormFusion& fusion) {
  state_->check_alive();
  return state_->evaluate_pass(x, y, fusion);
}
void SyncBatchNorm::backward(const BatchNormPass& pass, const Activations& x, const Activations& dy,
                             const Activations& dx, const BatchNormGradients& gradients,
                             const BatchNormFusion& fusion) {
  backward_of(*state_, pass, x, dy, &dx, gradients, fusion);
}
void SyncBatchNorm::backward_parameters(const BatchNormPass& pass, const Activations& x,
                                        const Activations& dy, const BatchNormGradients& gradients,
                                        const BatchNormFusion& fusion) {
  backward_of(*state_, pass, x, dy, nullptr, gradients, fusion);
}

void SyncBatchNorm::begin_forward(std::span<SyncBatchNorm* const> layers,
                                  std::span<const Activations> xs) {
  begin_forward_of(State::of(layers), xs);
}
void SyncBatchNorm::end_forward(std::span<SyncBatchNorm* const> layers,
                                std::span<const Activations> ys) {
  end_of(State::of(layers), ys, Pass::forward);
}
void SyncBatchNorm::begin_backward(std::span<SyncBatchNorm* const> layers,
                                   std::span<const Activations> xs,
                                   std::span<const Activations> dys) {
  begin_backward_of(State::of(layers), xs, dys, {});
}
void SyncBatchNorm::end_backward(std::span<SyncBatchNorm* const> layers,
                                 std::span<const Activations> dxs) {
  end_of(State::of(layers), dxs, Pass::backward);
}

}  // namespace rondo
