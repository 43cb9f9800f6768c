// SPDX-License-Identifier: Apache-2.0
#include "bn/layer.h"

#include <fmt/format.h>

#include <rondo/error.h>
#include <bit>
#include <cmath>
#include <utility>

#include "base/mix.h"
#include "bn/fingerprint.h"
#include "bn/settings.h"

namespace rondo::bn {

namespace {

void fill(const Buffer& buffer, double value) noexcept {
  for (std::size_t i = 0; i < buffer.count; ++i) {
    if (buffer.type == DType::f64)
      static_cast<double*>(buffer.data)[i] = value;
    else
      static_cast<float*>(buffer.data)[i] = static_cast<float>(value);
  }
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

void check_options(const BatchNormOptions& options) {
  std::string problem;
  if (options.type != DType::f64 && options.type != DType::f32 && options.type != DType::f16 &&
      options.type != DType::bf16)
    problem =
        fmt::format("type is {}; activations must be f64, f32, f16 or bf16", name_of(options.type));
  else if (options.layout != TensorLayout::nchw && options.layout != TensorLayout::nhwc)
    problem = "layout is neither nchw nor nhwc";
  else if (!(options.epsilon >= 0 && std::isfinite(options.epsilon)))
    problem = fmt::format("epsilon is {}; it must be finite and not negative", options.epsilon);
  else if (options.momentum && !(*options.momentum >= 0 && *options.momentum <= 1))
    problem =
        fmt::format("momentum is {}; it must be 0 to 1, or no value for the cumulative average",
                    *options.momentum);
  else if (options.threads < 0 || options.threads > 1024)
    problem = fmt::format("threads is {}; it must be 0 to 1024", options.threads);
  else if (options.deadline.count() < 0)
    problem = "the deadline is negative";
  if (!problem.empty())
    throw Error(Errc::invalid_argument,
                fmt::format("batch norm layer '{}': {}", options.name, problem));
}

BatchNormOptions checked(BatchNormOptions options) {
  check_options(options);
  return options;
}

}  // namespace

Layer::Layer(Communicator& communicator, std::size_t channels, BatchNormOptions options)
    : communicator_(&communicator),
      channels_(checked_channels(channels)),
      options_(checked(std::move(options))),
      parameter_type_(options_.type == DType::f64 ? DType::f64 : DType::f32),
      shared_(&Shared::of(communicator)),
      name_(shared_->names(), options_.name),
      name_hash_(
          base::mix_hash(base::mix_hash(base::hash_text(options_.name), name_.number()), channels)),
      identity_(base::mix_hash(name_hash_, hash_of_settings(options_))),
      passes_(shared_->pool(), checked_threads(options_, *shared_), options_.type, options_.layout,
              channels),
      parameters_(array_count * channels * size_of(parameter_type_)),
      lines_(5 * channels * size_of(parameter_type_)),
      gamma_gradient_(affine(gamma_gradient_at)),
      beta_gradient_(affine(beta_gradient_at)),
      local_(channels),
      evaluated_(channels),
      global_(channels),
      variance_(channels),
      local_sums_(2 * channels),
      global_sums_(2 * channels) {
  fill(gamma(), 1);
  fill(running_variance(), 1);
}

Layer::~Layer() {
  if (under_way_ != nullptr) under_way_->dissolve();
}

std::string Layer::who() const {
  return fmt::format("rank {}: batch norm {}", communicator_->rank(), title());
}

std::string Layer::title() const {
  const std::size_t number = name_.number() + 1;
  if (options_.name.empty()) return fmt::format("unnamed layer {}", number);
  if (number == 1) return fmt::format("layer {}", options_.name);
  const char* const suffix = number == 2 ? "nd" : number == 3 ? "rd" : "th";
  return fmt::format("layer {} ({}{} of this name)", options_.name, number, suffix);
}

Buffer Layer::parameter(Array which) const noexcept {
  char* const first = static_cast<char*>(parameters_.data());
  return {first + which * channels_ * size_of(parameter_type_), channels_, parameter_type_};
}

Buffer Layer::affine(Array which) const noexcept {
  return options_.affine ? parameter(which) : Buffer{nullptr, 0, parameter_type_};
}

void Layer::bind_gradients(Buffer gamma_gradient, Buffer beta_gradient) {
  const std::size_t count = options_.affine ? channels_ : 0;
  for (const Buffer& buffer : {gamma_gradient, beta_gradient})
    if (buffer.count != count ||
        (count > 0 && (buffer.type != parameter_type_ || buffer.data == nullptr)) ||
        buffer.device >= 0)
      throw Error(Errc::invalid_argument,
                  fmt::format("{}: gradients must be {} {} in host memory, not {} {}", who(), count,
                              name_of(parameter_type_), buffer.count, name_of(buffer.type)));
  gamma_gradient_ = gamma_gradient;
  beta_gradient_ = beta_gradient;
}

std::uint64_t Layer::history() const noexcept {
  return hash_of(global_.point);
}

std::span<const double> Layer::beta_gradient_sum() const noexcept {
  return std::span(global_sums_).first(options_.affine ? channels_ : 0);
}
std::span<const double> Layer::gamma_gradient_sum() const noexcept {
  return std::span(global_sums_).last(options_.affine ? channels_ : 0);
}

}  // namespace rondo::bn
