// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rondo/batch_norm.h>
#include <rondo/gradients.h>

#include <optional>
#include <string>
#include <vector>

#include "examples/train/convolution.h"
#include "examples/train/random.h"

namespace train {

struct StageShape {
  std::string name;  // "1" names the parameters conv1 and norm1
  std::size_t in_side, in_channels, out_channels, stride;
};

// Convolution, batch norm (or a bias), and max(0, x) with a rounded corner.
template <class T>
class Stage {
 public:
  // norms: the communicator of batch norm's statistics; null: a bias instead of batch norm.
  Stage(const StageShape& shape, rondo::Communicator* norms, Random& random);

  const Convolution<T>& convolution() const noexcept { return convolution_; }
  std::optional<rondo::SyncBatchNorm>& norm() noexcept { return norm_; }
  // In the order of the forward pass; their gradients are at first, first + 1 ... of the buckets.
  std::vector<rondo::Parameter> parameters();
  void set_first(std::size_t first) noexcept { first_ = first; }

  // x must stay until backward. training: use the statistics of this batch, otherwise the running
  // ones.
  const std::vector<T>& forward(const T* x, std::size_t samples, bool training);
  // Takes the gradient of the output in dy, and overwrites it. Adds to the gradients in the buckets
  // and marks them ready. Writes dx unless it is null.
  void backward(const T* x, std::vector<T>& dy, std::size_t samples,
                rondo::GradientBuckets& buckets, T* dx);

 private:
  rondo::Activations activations(std::vector<T>& values, std::size_t samples) const;
  void add_bias(std::size_t samples);
  void backward_norm(std::vector<T>& dy, std::size_t samples, rondo::GradientBuckets& buckets);

  std::string name_;
  Convolution<T> convolution_;
  std::optional<rondo::SyncBatchNorm> norm_;
  std::vector<T> bias_;
  std::vector<T> raw_, out_;   // outputs of the convolution and of the stage
  rondo::BatchNormPass pass_;  // of norm_, for backward
  std::size_t first_ = 0;
};

extern template class Stage<float>;
extern template class Stage<double>;

}  // namespace train
