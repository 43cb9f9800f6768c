// SPDX-License-Identifier: Apache-2.0
//
// The two sums of a forward pass (x - point and its square) and of a backward pass (dy and dy * (x - mean)).
#pragma once

#include "bn/kernels/elements.h"

namespace rondo::bn {
namespace {

template <class D>
struct Pair {
  D first, second;
  RONDO_INLINE void moments(D x, D point) {
    const D difference = x - point;
    first += difference;
    second += difference * difference;
  }
  RONDO_INLINE void gradients(D x, D dy, D mean) {
    first += dy;
    second += dy * (x - mean);
  }
};

template <class Machine, class T>
struct Sums {
  using R = Registers<Machine>;
  using D = typename R::D;
  static constexpr std::size_t step = Machine::lanes * 2;

  static void run_moments(const void* elements, std::size_t count, double point, double& first,
                          double& second) {
    const T* x = static_cast<const T*>(elements);
    const D at = D{} + point;
    Pair<D> sums[4] = {};
    std::size_t i = 0;
    for (; i + 2 * step <= count; i += 2 * step) {
      D a, b, c, d;
      R::read_wide(x + i, a, b);
      R::read_wide(x + i + step, c, d);
      sums[0].moments(a, at);
      sums[1].moments(b, at);
      sums[2].moments(c, at);
      sums[3].moments(d, at);
    }
    if (i + step <= count) {
      D a, b;
      R::read_wide(x + i, a, b);
      sums[0].moments(a, at);
      sums[1].moments(b, at);
      i += step;
    }
    Pair<double> rest{};
    for (; i < count; ++i) rest.moments(widen(x[i]), point);
    add(sums, rest, first, second);
  }

  static void run_gradients(const void* elements, const void* gradients, std::size_t count, double mean,
                            double& first, double& second) {
    const T *x = static_cast<const T*>(elements), *dy = static_cast<const T*>(gradients);
    const D at = D{} + mean;
    Pair<D> sums[4] = {};
    std::size_t i = 0;
    for (; i + 2 * step <= count; i += 2 * step) {
      D a, b, c, d, e, f, g, h;
      R::read_wide(x + i, a, b);
      R::read_wide(x + i + step, c, d);
      R::read_wide(dy + i, e, f);
      R::read_wide(dy + i + step, g, h);
      sums[0].gradients(a, e, at);
      sums[1].gradients(b, f, at);
      sums[2].gradients(c, g, at);
      sums[3].gradients(d, h, at);
    }
    if (i + step <= count) {
      D a, b, e, f;
      R::read_wide(x + i, a, b);
      R::read_wide(dy + i, e, f);
      sums[0].gradients(a, e, at);
      sums[1].gradients(b, f, at);
      i += step;
    }
    Pair<double> rest{};
    for (; i < count; ++i) rest.gradients(widen(x[i]), widen(dy[i]), mean);
    add(sums, rest, first, second);
  }

  // Several rows at once, so that the sums in memory are touched less often.
  static constexpr std::size_t together = 4;

  static void rows_moments(const void* elements, std::size_t rows, std::size_t channels, const double* point,
                           double* first, double* second) {
    const T* x = static_cast<const T*>(elements);
    for (; rows >= together; rows -= together, x += together * channels)
      some_moments<together>(x, channels, point, first, second);
    for (; rows > 0; --rows, x += channels) some_moments<1>(x, channels, point, first, second);
  }

  static void rows_gradients(const void* elements, const void* gradients, std::size_t rows,
                             std::size_t channels, const double* mean, double* first, double* second) {
    const T *x = static_cast<const T*>(elements), *dy = static_cast<const T*>(gradients);
    for (; rows >= together; rows -= together, x += together * channels, dy += together * channels)
      some_gradients<together>(x, dy, channels, mean, first, second);
    for (; rows > 0; --rows, x += channels, dy += channels)
      some_gradients<1>(x, dy, channels, mean, first, second);
  }

  static double element(const void* elements, std::size_t index) {
    return widen(static_cast<const T*>(elements)[index]);
  }

 private:
  RONDO_INLINE static void add(const Pair<D>* sums, const Pair<double>& rest, double& first, double& second) {
    first += R::total((sums[0].first + sums[1].first) + (sums[2].first + sums[3].first)) + rest.first;
    second += R::total((sums[0].second + sums[1].second) + (sums[2].second + sums[3].second)) + rest.second;
  }

  RONDO_INLINE static Pair<D> of(const double* first, const double* second, std::size_t channel) {
    return {load<D>(first + channel), load<D>(second + channel)};
  }
  RONDO_INLINE static void put(const Pair<D>& sums, double* first, double* second, std::size_t channel) {
    std::memcpy(first + channel, &sums.first, sizeof(D));
    std::memcpy(second + channel, &sums.second, sizeof(D));
  }

  template <std::size_t Rows>
  static void some_moments(const T* x, std::size_t channels, const double* point, double* first,
                           double* second) {
    std::size_t c = 0;
    for (; c + step <= channels; c += step) {
      const std::size_t next = c + Machine::lanes;
      Pair<D> low = of(first, second, c), high = of(first, second, next);
      const D low_point = load<D>(point + c), high_point = load<D>(point + next);
      for (std::size_t row = 0; row < Rows; ++row) {
        D a, b;
        R::read_wide(x + row * channels + c, a, b);
        low.moments(a, low_point);
        high.moments(b, high_point);
      }
      put(low, first, second, c);
      put(high, first, second, next);
    }
    for (; c < channels; ++c) {
      Pair<double> sums{first[c], second[c]};
      for (std::size_t row = 0; row < Rows; ++row) sums.moments(widen(x[row * channels + c]), point[c]);
      first[c] = sums.first;
      second[c] = sums.second;
    }
  }

  template <std::size_t Rows>
  static void some_gradients(const T* x, const T* dy, std::size_t channels, const double* mean, double* first,
                             double* second) {
    std::size_t c = 0;
    for (; c + step <= channels; c += step) {
      const std::size_t next = c + Machine::lanes;
      Pair<D> low = of(first, second, c), high = of(first, second, next);
      const D low_mean = load<D>(mean + c), high_mean = load<D>(mean + next);
      for (std::size_t row = 0; row < Rows; ++row) {
        D a, b, d, e;
        R::read_wide(x + row * channels + c, a, b);
        R::read_wide(dy + row * channels + c, d, e);
        low.gradients(a, d, low_mean);
        high.gradients(b, e, high_mean);
      }
      put(low, first, second, c);
      put(high, first, second, next);
    }
    for (; c < channels; ++c) {
      Pair<double> sums{first[c], second[c]};
      for (std::size_t row = 0; row < Rows; ++row)
        sums.gradients(widen(x[row * channels + c]), widen(dy[row * channels + c]), mean[c]);
      first[c] = sums.first;
      second[c] = sums.second;
    }
  }
};

}  // namespace
}  // namespace rondo::bn
