// SPDX-License-Identifier: Apache-2.0
#include "bn/layer.h"

#include <fmt/format.h>

#include <rondo/error.h>
#include <cmath>
#include <utility>

#include "base/mix.h"
#include "bn/settings.h"
#include "bn/values.h"

namespace rondo::bn {

namespace {

void fill(const Buffer& buffer, double value) {
  const std::vector<double> values(buffer.count, value);
  write_values(values, buffer);
}

std::string momentum_problem(std::optional<double> momentum) {
  if (!momentum || (*momentum >= 0 && *momentum <= 1)) return {};
  return fmt::format("momentum is {}; it must be 0 to 1, or no value for the cumulative average",
                     *momentum);
}

std::size_t checked_channels(std::size_t channels) {
  if (channels == 0 || channels > std::size_t{1} << 32)
    throw Error(Errc::invalid_argument,
                fmt::format("batch norm: {} channels; there must be 1 to 2^32", channels));
  return channels;
}

int checked_threads(const BatchNormOptions& options, const Shared& shared) {
  return options.threads > 0 ? options.threads : shared.threads_per_rank();
}

std::string threads_problem(int threads) {
  if (threads >= 0 && threads <= 1024) return {};
  return fmt::format("threads is {}; it must be 0 to 1024", threads);
}

std::string deadline_problem(std::chrono::milliseconds deadline) {
  return deadline.count() < 0 ? "the deadline is negative" : "";
}

void check_options(const BatchNormOptions& options) {
  std::string problem;
  if (!is_float_of_layer(options.type))
    problem =
        fmt::format("type is {}; activations must be f64, f32, f16 or bf16", name_of(options.type));
  else if (options.layout != TensorLayout::nchw && options.layout != TensorLayout::nhwc)
    problem = "layout is neither nchw nor nhwc";
  else if (!(options.epsilon >= 0 && std::isfinite(options.epsilon)))
    problem = fmt::format("epsilon is {}; it must be finite and not negative", options.epsilon);
  for (const std::string& other :
       {threads_problem(options.threads), deadline_problem(options.deadline),
        momentum_problem(options.momentum)})
    if (problem.empty()) problem = other;
  if (!problem.empty())
    throw Error(Errc::invalid_argument,
                fmt::format("batch norm layer '{}': {}", options.name, problem));
}

BatchNormOptions checked(BatchNormOptions options) {
  check_options(options);
  return options;
}

std::unique_ptr<GpuLayer> layer_on_gpu(Shared& shared, std::size_t channels,
                                       const BatchNormOptions& options) {
  if (options.device < 0) return nullptr;
  constexpr std::size_t most = std::size_t{1} << 24;
  if (channels > most)
    throw Error(Errc::invalid_argument,
                fmt::format("batch norm layer '{}': {} channels; on a GPU there may be {} at most",
                            options.name, channels, most));
  return std::make_unique<GpuLayer>(shared.kernels_on(options.device), channels, options);
}

std::string title_of(const std::string& name, std::size_t number) {
  if (name.empty()) return fmt::format("unnamed layer {}", number);
  if (number == 1) return fmt::format("layer {}", name);
  const char* const suffix = number == 2 ? "nd" : number == 3 ? "rd" : "th";
  return fmt::format("layer {} ({}{} of this name)", name, number, suffix);
}

// The layer's own arrays.
enum Array : std::size_t {
  gamma_at,
  beta_at,
  gamma_gradient_at,
  beta_gradient_at,
  running_mean_at,
  running_variance_at,
  array_count
};

}  // namespace

Layer::Layer(Communicator& communicator, std::size_t channels, BatchNormOptions options)
    : communicator_(&communicator),
      rank_(communicator.rank()),
      channels_(checked_channels(channels)),
      options_(checked(std::move(options))),
      parameter_type_(options_.type == DType::f64 ? DType::f64 : DType::f32),
      shared_(&Shared::of(communicator)),
      name_(std::in_place, shared_->names(), options_.name),
      name_hash_(base::mix_hash(base::mix_hash(base::hash_text(options_.name), name_->number()),
                                channels)),
      identity_(base::mix_hash(name_hash_, hash_of_settings(options_))),
      gpu_(layer_on_gpu(*shared_, channels, options_)),
      on_host_(gpu_ == nullptr ? channels : 0),
      records_(std::make_shared<PassPool>(title_of(options_.name, name_->number() + 1), on_host_)),
      passes_(shared_->pool(), checked_threads(options_, *shared_), options_.type, options_.layout,
              on_host_),
      arrays_(array_count * on_host_ * size_of(parameter_type_)),
      lines_(5 * on_host_ * size_of(parameter_type_)),
      gamma_(own_array(gamma_at, has_gamma())),
      beta_(own_array(beta_at, has_beta())),
      running_mean_(own_array(running_mean_at, true)),
      running_variance_(own_array(running_variance_at, true)),
      gradients_{own_array(gamma_gradient_at, has_gamma()), own_array(beta_gradient_at, has_beta()),
                 true},
      local_(on_host_),
      evaluated_(on_host_),
      global_(on_host_),
      variance_(on_host_),
      local_sums_(2 * on_host_),
      global_sums_(2 * on_host_),
      beta_values_(on_host_),
      values_(2 * on_host_),
      last_(records_->take()),
      evaluation_(on_host_) {
  if (gpu_ != nullptr) {
    gpu_->fill(buffers());
  } else {
    fill(gamma_, 1);
    fill(running_variance_, 1);
  }
  shared_->join(*this);
}

Layer::~Layer() {
  if (under_way_ != nullptr) under_way_->dissolve();
  // Before the memory of the collective goes.
  if (gpu_ != nullptr && !gpu_->settle()) own_.lose_memory();
  if (shared_ != nullptr) shared_->leave(*this);
  records_->close();
}

void Layer::orphan() noexcept {
  name_.reset();
  shared_ = nullptr;
  communicator_ = nullptr;
}

std::string Layer::who() const {
  return fmt::format("rank {}: batch norm {}", rank_, title());
}

void Layer::refuse(const std::string& problem) const {
  if (!problem.empty()) throw Error(Errc::invalid_argument, fmt::format("{}: {}", who(), problem));
}

void Layer::set_threads(int threads) {
  refuse(threads_problem(threads));
  options_.threads = threads;
  if (shared_ != nullptr) passes_.set_threads(checked_threads(options_, *shared_));
}

void Layer::set_deadline(std::chrono::milliseconds deadline) {
  refuse(deadline_problem(deadline));
  options_.deadline = deadline;
}

void Layer::take_stream() noexcept {
  if (gpu_ == nullptr) return;
  if (under_way_ == nullptr) pass_stream_ = next_stream_;
  gpu_->set_stream(pass_stream_);
}

void Layer::set_batches(std::uint64_t count) noexcept {
  batches = count;
  counted_ = false;
}

void Layer::set_momentum(std::optional<double> momentum) {
  refuse(momentum_problem(momentum));
  options_.momentum = momentum;
  identity_ = base::mix_hash(name_hash_, hash_of_settings(options_));
}

Buffer Layer::own_array(std::size_t which, bool exists) const noexcept {
  const int device = gpu_ == nullptr ? -1 : options_.device;
  if (!exists) return {nullptr, 0, parameter_type_, device};
  std::byte* const first =
      gpu_ == nullptr ? static_cast<std::byte*>(arrays_.data()) : gpu_->own_arrays();
  return {first + which * channels_ * size_of(parameter_type_), channels_, parameter_type_, device};
}

void Layer::bind_parameters(Buffer gamma, Buffer beta) {
  check_bound("gamma", gamma, has_gamma());
  check_bound("beta", beta, has_beta());
  gamma_ = gamma;
  beta_ = beta;
}

void Layer::bind_statistics(Buffer mean, Buffer variance) {
  check_bound("the running mean", mean, true);
  check_bound("the running variance", variance, true);
  running_mean_ = mean;
  running_variance_ = variance;
}

void Layer::bind_gradients(Buffer gamma_gradient, Buffer beta_gradient) {
  check_bound("the gradient of gamma", gamma_gradient, has_gamma());
  check_bound("the gradient of beta", beta_gradient, has_beta());
  gradients_ = {gamma_gradient, beta_gradient, true};
}

PassRecord& Layer::last() const {
  if (last_ == nullptr || !last_->ready)
    throw Error(Errc::invalid_argument,
                fmt::format("{}: backward without a forward pass in training before it{}", who(),
                            last_ == nullptr ? ": take_pass() took that" : ""));
  return *last_;
}

BatchNormPass Layer::take_pass() {
  if (last_ == nullptr || !last_->ready)
    throw Error(Errc::invalid_argument,
                fmt::format("{}: take_pass without a forward pass before it that has ended and "
                            "waits for backward",
                            who()));
  return BatchNormPass(records_, std::move(last_));
}

const PassRecord& Layer::record_of(const BatchNormPass& pass) const {
  if (!pass)
    throw Error(Errc::invalid_argument,
                fmt::format("{}: the pass is empty; take it from a forward pass, once, and do not "
                            "use it after it was moved",
                            who()));
  if (pass.pool() != records_.get())
    throw Error(
        Errc::invalid_argument,
        fmt::format("{}: the pass belongs to another layer, {}{}", who(), pass.pool()->title(),
                    pass.pool()->closed() ? ", which has been destroyed" : ""));
  return *pass.record();
}

std::span<const double> Layer::beta_gradient_sum() const noexcept {
  return std::span(global_sums_).first(has_beta() ? on_host_ : 0);
}
std::span<const double> Layer::gamma_gradient_sum() const noexcept {
  return std::span(global_sums_).last(has_gamma() ? on_host_ : 0);
}

Buffer Layer::point() noexcept {
  return gpu_ != nullptr ? gpu_->point() : Buffer{global_.point.data(), channels_, DType::f64};
}
Buffer Layer::mean_buffer() noexcept {
  return gpu_ != nullptr ? gpu_->mean() : Buffer{global_.mean.data(), channels_, DType::f64};
}
Buffer Layer::variance_buffer() noexcept {
  return gpu_ != nullptr ? gpu_->variance() : Buffer{variance_.data(), channels_, DType::f64};
}
Buffer Layer::beta_gradient_sum_buffer() noexcept {
  if (!has_beta()) return {nullptr, 0, DType::f64, options_.device};
  return gpu_ != nullptr ? gpu_->beta_gradient_sum()
                         : Buffer{global_sums_.data(), channels_, DType::f64};
}
Buffer Layer::gamma_gradient_sum_buffer() noexcept {
  if (!has_gamma()) return {nullptr, 0, DType::f64, options_.device};
  return gpu_ != nullptr ? gpu_->gamma_gradient_sum()
                         : Buffer{global_sums_.data() + channels_, channels_, DType::f64};
}

}  // namespace rondo::bn
