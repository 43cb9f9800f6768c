// SPDX-License-Identifier: Apache-2.0
#include "examples/train/stage.h"

#include <algorithm>
#include <cmath>

namespace train {
namespace {

// max(0, x) with a rounded corner: (x + 1)^2 / 4 between -1 and 1. At a sharp corner the slope
// jumps: a rounding error that moves an input across it changes gradients by far more than the
// error. With the rounded corner, runs that sum in different orders stay as close as their sums.
template <class T>
T rounded_relu(T x) {
  const T half = std::max((x + 1) / 2, T{0});
  return half < 1 ? half * half : x;
}

// The slope of rounded_relu where its result is y.
template <class T>
T slope(T y) {
  return std::min(std::sqrt(y), T{1});
}

}  // namespace

template <class T>
Stage<T>::Stage(const StageShape& shape, rondo::Communicator* norms, Random& random)
    : name_(shape.name),
      convolution_(shape.in_side, shape.in_channels, shape.out_channels, shape.stride) {
  // He's initialization, with a uniform distribution of the same variance: 2 / inputs.
  const double most = std::sqrt(6.0 / static_cast<double>(9 * shape.in_channels));
  for (T& weight : convolution_.weights()) weight = static_cast<T>(most * random.symmetric());
  if (norms == nullptr) {
    bias_.resize(shape.out_channels);
    return;
  }
  rondo::BatchNormOptions options;
  options.name = "norm" + name_;
  options.type = rondo::DTypeOf<T>::value;
  options.layout = rondo::TensorLayout::nhwc;
  options.threads = 1;
  norm_.emplace(*norms, shape.out_channels, options);
}

template <class T>
std::vector<rondo::Parameter> Stage<T>::parameters() {
  const std::size_t in = convolution_.in_channels(), out = convolution_.out_channels();
  const rondo::DType type = rondo::DTypeOf<T>::value;
  std::vector<rondo::Parameter> all;
  all.push_back(
      {"conv" + name_ + ".weight", {3, 3, in, out}, type, -1, convolution_.weights().data()});
  if (norm_) {
    all.push_back({"norm" + name_ + ".weight", {out}, type, -1, norm_->buffers().gamma.data});
    all.push_back({"norm" + name_ + ".bias", {out}, type, -1, norm_->buffers().beta.data});
  } else {
    all.push_back({"conv" + name_ + ".bias", {out}, type, -1, bias_.data()});
  }
  return all;
}

template <class T>
rondo::Activations Stage<T>::activations(std::vector<T>& values, std::size_t samples) const {
  return {values.data(), samples, convolution_.positions()};
}

template <class T>
void Stage<T>::add_bias(std::size_t samples) {
  const std::size_t channels = bias_.size();
  for (std::size_t i = 0; i < samples * convolution_.out_count(); i += channels)
    for (std::size_t c = 0; c < channels; ++c) out_[i + c] = raw_[i + c] + bias_[c];
}

template <class T>
const std::vector<T>& Stage<T>::forward(const T* x, std::size_t samples, bool training) {
  raw_.resize(samples * convolution_.out_count());
  out_.resize(raw_.size());
  convolution_.forward(x, samples, raw_.data());
  if (!norm_)
    add_bias(samples);
  else if (training)
    pass_ = norm_->forward(activations(raw_, samples), activations(out_, samples));
  else
    norm_->evaluate(activations(raw_, samples), activations(out_, samples));
  for (T& value : out_) value = rounded_relu(value);
  return out_;
}

template <class T>
void Stage<T>::backward_norm(std::vector<T>& dy, std::size_t samples,
                             rondo::GradientBuckets& buckets) {
  if (norm_) {
    norm_->backward(pass_, activations(raw_, samples), activations(dy, samples),
                    activations(dy, samples),
                    {buckets.gradient(first_ + 1), buckets.gradient(first_ + 2), true});
    buckets.ready(first_ + 2);
  } else {
    T* const gradient = static_cast<T*>(buckets.gradient(first_ + 1).data);
    const std::size_t channels = bias_.size();
    for (std::size_t i = 0; i < dy.size(); i += channels)
      for (std::size_t c = 0; c < channels; ++c) gradient[c] += dy[i + c];
  }
  buckets.ready(first_ + 1);
}

template <class T>
void Stage<T>::backward(const T* x, std::vector<T>& dy, std::size_t samples,
                        rondo::GradientBuckets& buckets, T* dx) {
  for (std::size_t i = 0; i < dy.size(); ++i) dy[i] *= slope(out_[i]);
  backward_norm(dy, samples, buckets);
  T* const gradient = static_cast<T*>(buckets.gradient(first_).data);
  convolution_.backward(x, dy.data(), samples, gradient, dx);
  buckets.ready(first_);
}

template class Stage<float>;
template class Stage<double>;

}  // namespace train
