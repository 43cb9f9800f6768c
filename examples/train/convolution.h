// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace train {

// A 3 x 3 convolution without a bias, of square NHWC pictures with a border of zeros. The weights
// are [3, 3, in, out].
template <class T>
class Convolution {
 public:
  Convolution(std::size_t in_side, std::size_t in_channels, std::size_t out_channels,
              std::size_t stride);

  std::size_t in_count() const noexcept {
    return in_side_ * in_side_ * in_channels_;
  }  // of one picture
  std::size_t out_count() const noexcept { return positions() * out_channels_; }
  std::size_t out_side() const noexcept { return (in_side_ - 1) / stride_ + 1; }
  std::size_t positions() const noexcept { return out_side() * out_side(); }
  std::size_t in_channels() const noexcept { return in_channels_; }
  std::size_t out_channels() const noexcept { return out_channels_; }
  std::vector<T>& weights() noexcept { return weights_; }

  void forward(const T* x, std::size_t samples, T* y);
  // Adds to weight_gradient. Writes dx unless it is null.
  void backward(const T* x, const T* dy, std::size_t samples, T* weight_gradient, T* dx);

 private:
  // in_channels elements that a position sees: index of the first in the picture and in columns_.
  struct Run {
    std::size_t from, to;
  };
  std::size_t inner() const noexcept { return 9 * in_channels_; }
  void unfold(const T* picture);

  std::size_t in_side_, in_channels_, out_channels_, stride_;
  std::vector<Run> runs_;
  std::vector<T> weights_;
  std::vector<T> columns_;     // what each position of one picture sees, [positions, 9 in_channels]
  std::vector<T> transposed_;  // weights, [out, 9 in_channels]
};

extern template class Convolution<float>;
extern template class Convolution<double>;

}  // namespace train
