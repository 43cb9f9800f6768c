// SPDX-License-Identifier: Apache-2.0
#include "examples/train/convolution.h"

#include <algorithm>

#include "examples/train/matrix.h"

namespace train {

template <class T>
Convolution<T>::Convolution(std::size_t in_side, std::size_t in_channels, std::size_t out_channels,
                            std::size_t stride)
    : in_side_(in_side), in_channels_(in_channels), out_channels_(out_channels), stride_(stride) {
  weights_.resize(inner() * out_channels_);
  transposed_.resize(weights_.size());
  columns_.resize(positions() * inner());  // the border stays 0
  const std::size_t side = out_side();
  for (std::size_t place = 0; place < positions() * 9; ++place) {
    const std::size_t position = place / 9, tap = place % 9;
    // Row and column in the picture, plus one: 0 is the border.
    const std::size_t row = position / side * stride_ + tap / 3;
    const std::size_t column = position % side * stride_ + tap % 3;
    if (row == 0 || column == 0 || row > in_side_ || column > in_side_) continue;
    runs_.push_back({((row - 1) * in_side_ + column - 1) * in_channels_, place * in_channels_});
  }
}

template <class T>
void Convolution<T>::unfold(const T* picture) {
  for (const Run& run : runs_)
    std::copy_n(picture + run.from, in_channels_, columns_.data() + run.to);
}

template <class T>
void Convolution<T>::forward(const T* x, std::size_t samples, T* y) {
  std::fill_n(y, samples * out_count(), T{0});
  for (std::size_t n = 0; n < samples; ++n) {
    unfold(x + n * in_count());
    multiply_add<T>(y + n * out_count(), positions(), out_channels_, {columns_.data(), inner(), 1},
                    weights_.data(), inner());
  }
}

template <class T>
void Convolution<T>::backward(const T* x, const T* dy, std::size_t samples, T* weight_gradient,
                              T* dx) {
  for (std::size_t n = 0; n < samples; ++n) {
    unfold(x + n * in_count());
    multiply_add<T>(weight_gradient, inner(), out_channels_, {columns_.data(), 1, inner()},
                    dy + n * out_count(), positions());
  }
  if (dx == nullptr) return;
  for (std::size_t i = 0; i < inner(); ++i)
    for (std::size_t o = 0; o < out_channels_; ++o)
      transposed_[o * inner() + i] = weights_[i * out_channels_ + o];
  std::fill_n(dx, samples * in_count(), T{0});
  std::vector<T> seen(columns_.size());  // gradients of what each position sees
  for (std::size_t n = 0; n < samples; ++n) {
    std::fill(seen.begin(), seen.end(), T{0});
    multiply_add<T>(seen.data(), positions(), inner(), {dy + n * out_count(), out_channels_, 1},
                    transposed_.data(), out_channels_);
    T* const picture = dx + n * in_count();
    for (const Run& run : runs_)
      for (std::size_t c = 0; c < in_channels_; ++c) picture[run.from + c] += seen[run.to + c];
  }
}

template class Convolution<float>;
template class Convolution<double>;

}  // namespace train
