// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/gradients.h>
#include <rondo/metrics.h>

#include <span>
#include <vector>

#include "examples/train/random.h"

namespace train {

// The result of a batch: mean loss and share of right answers, over samples.
struct Result {
  rondo::WeightedMean loss, right;
};

// The end of the network: mean over positions, a linear layer, and softmax with cross entropy.
template <class T>
class Head {
 public:
  Head(std::size_t positions, std::size_t channels, std::size_t classes, Random& random);

  std::vector<rondo::Parameter> parameters();  // linear.weight [channels, classes], linear.bias
  void set_first(std::size_t first) noexcept { first_ = first; }

  // weights: the weight of each sample in the result; empty: all are 1.
  Result forward(const std::vector<T>& x, std::span<const int> labels,
                 std::span<const double> weights);
  // Writes dx, and adds the gradients of scale * (sum of the losses of the samples) to the buckets.
  void backward(std::span<const int> labels, double scale, rondo::GradientBuckets& buckets,
                std::vector<T>& dx);

 private:
  void answer(std::size_t sample, const T* x);

  std::size_t positions_, channels_, classes_;
  std::vector<T> weights_, bias_;
  std::vector<T> means_;          // [samples, channels]
  std::vector<T> probabilities_;  // [samples, classes]
  std::size_t first_ = 0;
};

extern template class Head<float>;
extern template class Head<double>;

}  // namespace train
