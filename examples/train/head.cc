// SPDX-License-Identifier: Apache-2.0
#include "examples/train/head.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace train {

template <class T>
Head<T>::Head(std::size_t positions, std::size_t channels, std::size_t classes, Random& random)
    : positions_(positions),
      channels_(channels),
      classes_(classes),
      weights_(channels * classes),
      bias_(classes) {
  const double most = std::sqrt(3.0 / static_cast<double>(channels));  // variance 1 / inputs
  for (T& weight : weights_) weight = static_cast<T>(most * random.symmetric());
}

template <class T>
std::vector<rondo::Parameter> Head<T>::parameters() {
  const rondo::DType type = rondo::DTypeOf<T>::value;
  return {{"linear.weight", {channels_, classes_}, type, -1, weights_.data()},
          {"linear.bias", {classes_}, type, -1, bias_.data()}};
}

template <class T>
void Head<T>::answer(std::size_t sample, const T* x) {
  T* const mean = means_.data() + sample * channels_;
  T* const out = probabilities_.data() + sample * classes_;
  std::fill_n(mean, channels_, T{0});
  for (std::size_t p = 0; p < positions_; ++p)
    for (std::size_t c = 0; c < channels_; ++c) mean[c] += x[p * channels_ + c];
  for (std::size_t c = 0; c < channels_; ++c) mean[c] /= static_cast<T>(positions_);
  std::copy(bias_.begin(), bias_.end(), out);
  for (std::size_t c = 0; c < channels_; ++c)
    for (std::size_t k = 0; k < classes_; ++k) out[k] += mean[c] * weights_[c * classes_ + k];
  const T most = *std::max_element(out, out + classes_);
  T sum = 0;
  for (std::size_t k = 0; k < classes_; ++k) sum += out[k] = std::exp(out[k] - most);
  for (std::size_t k = 0; k < classes_; ++k) out[k] /= sum;
}

template <class T>
Result Head<T>::forward(const std::vector<T>& x, std::span<const int> labels,
                        std::span<const double> weights) {
  means_.resize(labels.size() * channels_);
  probabilities_.resize(labels.size() * classes_);
  Result result;
  for (std::size_t n = 0; n < labels.size(); ++n) {
    answer(n, x.data() + n * positions_ * channels_);
    const T* const chance = probabilities_.data() + n * classes_;
    const double weight = weights.empty() ? 1 : weights[n];
    // A probability may round to 0.
    const T truth = std::max(chance[labels[n]], std::numeric_limits<T>::min());
    result.loss.add(-std::log(static_cast<double>(truth)), weight);
    result.right.add(std::max_element(chance, chance + classes_) - chance == labels[n] ? 1 : 0,
                     weight);
  }
  return result;
}

template <class T>
void Head<T>::backward(std::span<const int> labels, double scale, rondo::GradientBuckets& buckets,
                       std::vector<T>& dx) {
  T* const weight_gradient = static_cast<T*>(buckets.gradient(first_).data);
  T* const bias_gradient = static_cast<T*>(buckets.gradient(first_ + 1).data);
  dx.resize(labels.size() * positions_ * channels_);
  for (std::size_t n = 0; n < labels.size(); ++n) {
    T* const d = probabilities_.data() + n * classes_;
    d[labels[n]] -= 1;
    for (std::size_t k = 0; k < classes_; ++k) bias_gradient[k] += d[k] *= static_cast<T>(scale);
    T* const picture = dx.data() + n * positions_ * channels_;
    for (std::size_t c = 0; c < channels_; ++c) {
      T sum = 0;
      for (std::size_t k = 0; k < classes_; ++k) {
        weight_gradient[c * classes_ + k] += means_[n * channels_ + c] * d[k];
        sum += weights_[c * classes_ + k] * d[k];
      }
      picture[c] = sum / static_cast<T>(positions_);
    }
    for (std::size_t p = 1; p < positions_; ++p)
      std::copy_n(picture, channels_, picture + p * channels_);
  }
  buckets.ready(first_ + 1);
  buckets.ready(first_);
}

template class Head<float>;
template class Head<double>;

}  // namespace train
